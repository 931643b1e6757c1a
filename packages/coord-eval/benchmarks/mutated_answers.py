"""Parse 100,000 mutated answers of the corpus of all families; prints how many raised, and what was found.

python packages/coord-eval/benchmarks/mutated_answers.py
"""

import importlib.util
from pathlib import Path

import typer


def main(count: int = 100_000, seed: int = 0) -> None:
    """Parse mutated answers and check the rules of each object and drop."""
    path = Path(__file__).parent.parent / "tests" / "parse" / "test_corpus.py"
    spec = importlib.util.spec_from_file_location("test_corpus", path)
    assert spec and spec.loader
    corpus = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(corpus)
    objects = corpus.check_mutated(count, seed)
    print(f"{count} mutated answers of {len(corpus.CORPUS)} families: 0 raised, {objects} objects")


if __name__ == "__main__":
    typer.run(main)
