"""From a command line to a prediction: launch, supervise, read, price, simulate, write.

Import the module you need (`maya.pipeline.job`, `maya.pipeline.predict`); this door imports nothing,
because `maya run` must be on its way to launching the script within a few hundredths of a second.
"""
