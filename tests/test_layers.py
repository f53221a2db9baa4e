"""Who may import whom: the table of ARCHITECTURE.md, kept in pyproject.toml for import-linter."""

import grimp
from importlinter.cli import lint_imports


def test_no_import_points_the_wrong_way(monkeypatch, request, capsys):
    monkeypatch.chdir(request.config.rootpath)

    exit_code = lint_imports(is_debug_mode=False, no_cache=True)

    assert exit_code == 0, capsys.readouterr().out


def test_the_shared_records_import_nothing_of_ours():
    graph = grimp.build_graph("scheduler", cache_dir=None)

    assert graph.find_modules_directly_imported_by("scheduler.records") == set()
