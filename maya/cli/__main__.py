"""`python -m maya.cli`, the same as `maya`."""

import sys

from maya.cli import main

sys.exit(main())
