from kltune.api.study import Study as Study
from kltune.api.study import open_study as open_study
from kltune.api.sweep import sweep as sweep

__version__: str
