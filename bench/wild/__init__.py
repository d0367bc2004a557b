"""The wild zoo: other people's Transformers, as they are in their repositories, described to the doctor.

None of their code is here. Each description imports it from a clone that you point the benchmark to.
"""
