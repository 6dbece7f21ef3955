"""What a person or a program gets to see of a prediction.

Import the module you need; this door imports nothing, because the console must be there before
NumPy is. `renderers.renderer_for(format)` gives each form of a report.
"""
