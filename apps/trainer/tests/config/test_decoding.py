"""The table of decoding strategies."""

from coord_trainer.config.decoding import STRATEGIES, prediction_files


def test_free_answers_are_those_of_greedy_decoding_whatever_boxes_are_taken_from_them():
    free = [strategy for strategy in STRATEGIES.values() if not strategy.grammar]
    assert [strategy.name for strategy in free] == ["greedy", "best-iou"]
    assert len({strategy.generation for strategy in free}) == 1
    assert [strategy.needs_tokens for strategy in free] == [False, True]


def test_first_strategy_writes_into_the_run_folder_itself(tmp_path):
    files = prediction_files(["names", "greedy"], tmp_path)
    assert files[0] == (STRATEGIES["names"], tmp_path / "predictions.jsonl")
    assert files[1] == (STRATEGIES["greedy"], tmp_path / "readings" / "greedy" / "predictions.jsonl")
