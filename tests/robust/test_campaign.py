"""The table of ./run robust."""

from tests.robust.campaign import BEGIN, END, HEAD, Row, read_rows, write


def test_rows_that_are_not_run_again_stay_and_all_are_added_up(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n{HEAD}{END}\nafter\n")
    write([Row("read las", 1000, 0, 0), Row("kills", 0, 20, 1)], page)
    write([Row("kills", 0, 30, 0), Row("pctx info", 5, 2, 0)], page)
    rows = [str(row) for row in read_rows(page)]
    assert rows == [
        "| read las | 1,000 | 0 | 1,000 | 0 |",
        "| kills | 0 | 30 | 30 | 0 |",
        "| pctx info | 5 | 2 | 7 | 0 |",
    ]
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith(f"{END}\nafter\n")
    assert "| **all** | 1,005 | 32 | 1,037 | 0 |\n" in text
