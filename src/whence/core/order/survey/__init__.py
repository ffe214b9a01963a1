"""Every mechanism of the SURVEY (docs/survey.md) under one protocol: `base.Mechanism`, driven by `base.Process`."""
