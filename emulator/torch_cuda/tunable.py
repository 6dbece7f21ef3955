"""TunableOp's settings: kept and answered, but no GEMM is ever tuned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class TunableSettings:
    """Defaults of at::cuda::tunable::TuningContext."""

    enabled: bool = False
    tuning: bool = True
    record_untuned: bool = False
    max_tuning_duration_ms: int = 30
    max_tuning_iterations: int = 100
    filename: str = ""
    rotating_buffer_bytes: int = 0
    cublaslt_algorithms: int = 8

    def set_filename(self, filename: str, insert_device_ordinal: bool = False) -> None:
        self.filename = filename + ("%d" if insert_device_ordinal else "")

    def set_rotating_buffer(self, size_mib: int) -> None:
        self.rotating_buffer_bytes = size_mib << 20

    def names(self) -> dict[str, Any]:
        """The `torch._C` attributes about TunableOp."""

        def setter(field: str) -> Any:
            return lambda value: setattr(self, field, value)

        def getter(field: str) -> Any:
            return lambda: getattr(self, field)

        return {
            "_cuda_tunableop_enable": setter("enabled"),
            "_cuda_tunableop_is_enabled": getter("enabled"),
            "_cuda_tunableop_tuning_enable": setter("tuning"),
            "_cuda_tunableop_tuning_is_enabled": getter("tuning"),
            "_cuda_record_untuned_enable": setter("record_untuned"),
            "_cuda_record_untuned_is_enabled": getter("record_untuned"),
            "_cuda_tunableop_set_max_tuning_duration": setter("max_tuning_duration_ms"),
            "_cuda_tunableop_get_max_tuning_duration": getter("max_tuning_duration_ms"),
            "_cuda_tunableop_set_max_tuning_iterations": setter("max_tuning_iterations"),
            "_cuda_tunableop_get_max_tuning_iterations": getter("max_tuning_iterations"),
            "_cuda_tunableop_set_filename": self.set_filename,
            "_cuda_tunableop_get_filename": getter("filename"),
            "_cuda_tunableop_set_rotating_buffer_size": self.set_rotating_buffer,
            "_cuda_tunableop_get_rotating_buffer_size": getter("rotating_buffer_bytes"),
            "_cuda_tunableop_set_cublaslt_requested_algo_count": setter("cublaslt_algorithms"),
            "_cuda_tunableop_get_cublaslt_requested_algo_count": getter("cublaslt_algorithms"),
            "_cuda_tunableop_set_numerical_check_tolerances": lambda _enable, _atol=1e-5, _rtol=1e-5: None,
            "_cuda_tunableop_get_results": tuple,
            "_cuda_tunableop_get_validators": tuple,
            "_cuda_tunableop_read_file": lambda _filename=None: False,
        }
