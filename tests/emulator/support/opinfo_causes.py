"""Why an OpInfo disagrees, where somebody looked."""

CAUSES = {
    "addbmm": "addbmm_ resizes what it writes, which Maya does not follow",
    "torch_ops_aten__flash_attention_forward": "the CPU has no such operator: nothing to compare with",
    "torch_ops_aten__efficient_attention_forward": "the CPU has no such operator: nothing to compare with",
    "sparse_sampled_addmm": "compressed sparse (CSR) CUDA tensors are refused",
    "sparse_mm_reduce": "compressed sparse (CSR) CUDA tensors are refused",
}
