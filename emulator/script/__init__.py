"""Following the user's script: running it, telling its iterations, modules and phases, ending it."""

from maya.emulator.script.follower import Ending, FollowSettings, ScriptFollower, ScriptOutcome
from maya.emulator.script.main_module import ScriptTarget
from maya.emulator.script.native import ScriptNative
from maya.emulator.script.stop import StopRun
from maya.emulator.script.values import ValuePolicy, ValueSettings

__all__ = [
    "Ending",
    "FollowSettings",
    "ScriptFollower",
    "ScriptNative",
    "ScriptOutcome",
    "ScriptTarget",
    "StopRun",
    "ValuePolicy",
    "ValueSettings",
]
