from foredraft.bench.tables import counted, figure, percent, table


def test_a_table_lines_up_and_is_markdown() -> None:
    assert table(["x", "value"], [["first", "1.0"], ["b", "22.50"]]).splitlines() == [
        "| x     | value |",
        "|-------|------:|",
        "| first |   1.0 |",
        "| b     | 22.50 |",
    ]


def test_a_cell_cannot_break_its_row() -> None:
    assert table(["a|b"], [["c|d"]]).splitlines() == ["| a\\|b |", "|------|", "| c\\|d |"]


def test_figures() -> None:
    assert [figure(None), figure(1.005, 1), figure(2.0)] == ["-", "1.0", "2.00"]
    assert [percent(None), percent(0.125), percent(0.125, 1)] == ["-", "12%", "12.5%"]
    assert [counted(1, "turn"), counted(2, "turn")] == ["1 turn", "2 turns"]
