"""The table of decoding strategies."""

from coord_trainer.config.decoding import STRATEGIES, prediction_files


def test_all_strategies_but_the_first_need_the_grammar():
    assert [name for name, strategy in STRATEGIES.items() if not strategy.grammar] == ["greedy"]


def test_first_strategy_writes_into_the_run_folder_itself(tmp_path):
    files = prediction_files(["names", "greedy"], tmp_path)
    assert files[0] == (STRATEGIES["names"], tmp_path / "predictions.jsonl")
    assert files[1] == (STRATEGIES["greedy"], tmp_path / "readings" / "greedy" / "predictions.jsonl")
