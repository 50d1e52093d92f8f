import pytest

from holdfast.quantity import format_duration, format_size, milliseconds, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (65536, 65536),
        ("65536", 65536),
        ("100_000", 100_000),
        ("12B", 12),
        ("512KB", 512_000),
        ("512kb", 512_000),
        ("1MB", 1_000_000),
        ("1MiB", 1_048_576),
        ("1.5 MiB", 1_572_864),
        ("2GiB", 2 * 1024**3),
    ],
)
def test_sizes_are_read_as_people_write_them(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "1XB", "-1", -1, 1.5, True, None, "1MB2", "1 M B", "1e6"])
def test_what_is_no_size_is_refused_with_expected_and_got(text: object) -> None:
    with pytest.raises(ValueError, match="expected a size such as 65536, 512KB or 1MiB, got"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (0, 0),
        (30, 30),
        (0.25, 0.25),
        ("30", 30),
        ("2.5", 2.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("15m", 900),
        ("1h", 3600),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172_800),
        ("1W", 604_800),
    ],
)
def test_durations_are_read_as_people_write_them(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "15 minutes", "-5s", -5, True, None, "1h30", "5x", float("inf"), float("nan")]
)
def test_what_is_no_duration_is_refused_with_expected_and_got(text: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 30, 30s, 15m, 1h or 2d, got"):
        parse_duration(text)


def test_whole_seconds_are_an_int_and_fractions_keep_their_milliseconds() -> None:
    assert isinstance(parse_duration("15m"), int)
    assert milliseconds(parse_duration("1s 1ms")) == 1001


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1024, 65535, 512_000, 1_048_576, 10**9, 2**40])
def test_a_formatted_size_reads_back_as_the_same_size(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("duration", [0, 0.001, 0.5, 1, 59, 60, 90, 3600, 86_400, 86_401, 604_800])
def test_a_formatted_duration_reads_back_as_the_same_duration(duration: float) -> None:
    assert parse_duration(format_duration(duration)) == duration
