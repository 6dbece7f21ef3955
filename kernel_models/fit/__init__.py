"""Fitting the parametric formulas to measurements; needs pandas, pyarrow and scipy, prediction does not."""
