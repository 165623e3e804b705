from tests.project.features.small_model import clone

clone()
