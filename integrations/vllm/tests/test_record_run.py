"""The line about a run of the tests."""

import pytest
import record_run
from golden import GOLDEN

PAGE = f"""# Page

{record_run.HEADER}
|---|---|---|---|---|---|---|
| A, AMX | 1 | 2 | 3 | 2026-01-01 | 5 | 6 |
| B, AMX | 1 | 2 | 3 | 2026-01-01 | 5 | 6 |

More.
"""


def report(path, **numbers):
    attributes = " ".join(f'{name}="{value}"' for name, value in numbers.items())
    path.write_text(f"<testsuites><testsuite {attributes} /></testsuites>")
    return path


def test_a_line_takes_the_place_of_the_one_about_the_same():
    page = record_run.with_line(PAGE, ["A, AMX", "1", "2", "3", "2026-02-02", "7", "8"])
    lines = page.split("\n")
    assert len(lines) == len(PAGE.split("\n"))
    assert lines[4:6] == [
        "| B, AMX | 1 | 2 | 3 | 2026-01-01 | 5 | 6 |",
        "| A, AMX | 1 | 2 | 3 | 2026-02-02 | 7 | 8 |",
    ]
    other = record_run.with_line(PAGE, ["A, AMX", "2", "2", "3", "2026-02-02", "7", "8"])
    assert len(other.split("\n")) == len(PAGE.split("\n")) + 1


def test_the_page_has_the_table():
    page = (GOLDEN.parents[1] / "docs" / "vllm.md").read_text()
    assert len(record_run.with_line(page, ["x"] * 7).split("\n")) == len(page.split("\n")) + 1


@pytest.mark.parametrize(
    "flags,best",
    {
        "avx512f avx512_bf16 amx_tile amx_fp8": "AMX with FP8",
        "avx512f avx512_bf16 amx_tile": "AMX",
        "avx512f avx512_bf16": "AVX-512 with BF16",
        "avx512f": "AVX-512",
        "avx2": "no AVX-512",
    }.items(),
)
def test_the_cpu_and_its_best_instructions(flags, best):
    text = f"processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\nflags\t\t: fpu {flags}\n\n"
    assert record_run.cpu(text) == f"Intel Xeon Processor, {best}"


def test_passed_tests_are_counted_and_failures_are_not_recorded(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    good = report(tmp_path / "a.xml", tests=10, failures=0, errors=0, skipped=3)
    bad = report(tmp_path / "b.xml", tests=10, failures=1, errors=1, skipped=0)
    assert record_run.counts([good, bad]) == (15, 2, 3)
    assert record_run.main(page, [good, bad]) == 1
    assert page.read_text() == PAGE
    assert "2 tests failed" in capsys.readouterr().err
    assert record_run.main(page, [good]) == 0
    assert page.read_text().split("\n")[6].endswith("| 7 | 3 |")
