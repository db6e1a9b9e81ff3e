"""python3 bench/scale [TABLE] [--check]"""

import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)
from scale import page

sys.exit(page.main())
