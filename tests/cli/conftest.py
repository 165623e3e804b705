from tests.training.evaluation.conftest import blank_figures  # noqa: F401 - a fixture
