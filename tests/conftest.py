"""Settings for all tests."""

import hypothesis
import torch

hypothesis.settings.register_profile("kronfield", deadline=None, derandomize=True, print_blob=False)
hypothesis.settings.load_profile("kronfield")
torch.set_num_threads(2)
