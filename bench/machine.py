"""What figures were measured on, to be written down beside them."""

import os
import platform


def describe() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
