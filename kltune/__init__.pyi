from kltune.api.arms import Arms as Arms
from kltune.api.arms import open_arms as open_arms
from kltune.api.arms import run_arms as run_arms
from kltune.api.study import Study as Study
from kltune.api.study import open_study as open_study
from kltune.api.sweep import sweep as sweep

__version__: str
