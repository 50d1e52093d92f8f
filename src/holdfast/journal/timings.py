"""How long the journal's syncs take: a histogram, written by the writer's thread and read by whoever wants to know."""

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds


class Timings:
    """`counts` are of each bucket alone; the last one is for everything beyond the bounds."""

    def __init__(self) -> None:
        self.bounds = BOUNDS
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self.total_s += seconds
        for place, bound in enumerate(BOUNDS):
            if seconds <= bound:
                self.counts[place] += 1
                return
        self.counts[-1] += 1
