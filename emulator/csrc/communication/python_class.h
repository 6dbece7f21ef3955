// torch.distributed.ProcessGroupNCCL and its Options, as Python sees them.
#pragma once
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "list_collectives.h"
#include "reducer_timer.h"

namespace maya {

namespace py = pybind11;

inline void define_nccl_config(const py::object& owner) {
  auto config = py::class_<NcclConfig>(owner, "NCCLConfig", py::dynamic_attr());
  config.def(py::init<>())
      .def_readwrite("blocking", &NcclConfig::blocking)
      .def_readwrite("cga_cluster_size", &NcclConfig::cga_cluster_size)
      .def_readwrite("min_ctas", &NcclConfig::min_ctas)
      .def_readwrite("max_ctas", &NcclConfig::max_ctas)
      .def_readwrite("split_share", &NcclConfig::split_share)
      .def_readwrite("traffic_class", &NcclConfig::traffic_class)
      .def_readwrite("collnet_enable", &NcclConfig::collnet_enable)
      .def_readwrite("cta_policy", &NcclConfig::cta_policy)
      .def_readwrite("shrink_share", &NcclConfig::shrink_share)
      .def_readwrite("nvls_ctas", &NcclConfig::nvls_ctas)
      .def_readwrite("max_p2p_peers", &NcclConfig::max_p2p_peers)
      .def_readwrite("net_name", &NcclConfig::net_name)
      .def_readwrite("comm_name", &NcclConfig::comm_name)
      .def("__copy__", [](const NcclConfig& self) { return NcclConfig(self); })
      .def("__deepcopy__", [](const NcclConfig& self, const py::dict&) { return NcclConfig(self); }, py::arg("memo"));
}

inline void define_nccl_options(const py::object& owner) {
  auto copy = [](const NcclOptions& self) { return c10::make_intrusive<NcclOptions>(self); };
  py::class_<NcclOptions, c10d::Backend::Options, c10::intrusive_ptr<NcclOptions>>(owner, "Options", py::dynamic_attr())
      .def(py::init([](bool high_priority) { return c10::make_intrusive<NcclOptions>(high_priority); }), py::arg("is_high_priority_stream") = false)
      .def_readwrite("is_high_priority_stream", &NcclOptions::is_high_priority_stream)
      .def_readwrite("config", &NcclOptions::config)
      .def_readwrite("split_from", &NcclOptions::split_from)
      .def_readwrite("split_color", &NcclOptions::split_color)
      .def_readwrite("use_pg_for_symm_mem_rendezvous", &NcclOptions::use_pg_for_symm_mem_rendezvous)
      .def("__copy__", copy)
      .def("__deepcopy__", [copy](const NcclOptions& self, const py::dict&) { return copy(self); }, py::arg("memo"));
}

inline py::object define_process_group(py::module_& module, int64_t global_rank) {
  own_global_rank() = global_rank;
  if (py::hasattr(module, "ProcessGroupNCCL")) return module.attr("ProcessGroupNCCL");
  register_reducer_timer();
  host_waits_for() = [](int device, int64_t stream) { Outstanding::instance().finish(device, stream); };
  py::module_::import("torch._C._distributed_c10d");
  auto group = py::class_<NcclBackend, c10d::Backend, c10::intrusive_ptr<NcclBackend>>(module, "ProcessGroupNCCL");
  define_nccl_config(group);
  define_nccl_options(group);
  using Store = c10::intrusive_ptr<c10d::Store>;
  group
      .def(py::init([](const Store& store, int rank, int size, c10::intrusive_ptr<NcclOptions> options) {
             return c10::make_intrusive<NcclBackend>(store, rank, size, options ? options : c10::make_intrusive<NcclOptions>());
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options") = nullptr)
      .def(py::init([](const Store& store, int rank, int size, std::chrono::milliseconds timeout) {
             auto options = c10::make_intrusive<NcclOptions>();
             options->timeout = timeout;
             return c10::make_intrusive<NcclBackend>(store, rank, size, options);
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"))
      .def_property_readonly("options", &NcclBackend::options)
      .def_property_readonly("uid", [](NcclBackend& self) { return self.getID(); })
      .def_property("bound_device_id", [](NcclBackend& self) { return self.getBoundDeviceId(); }, [](NcclBackend& self, std::optional<c10::Device> device) { self.setBoundDeviceId(device); })
      .def("_comm_ptr", [](NcclBackend& self) { return self.getID(); })
      .def("_group_start", [](NcclBackend&) {})
      .def("_group_end", [](NcclBackend&) {})
      .def("_is_initialized", &NcclBackend::is_initialized)
      .def("comm_split_count", &NcclBackend::splits)
      .def("perform_nocolor_split", [](NcclBackend& self, const c10::Device&) { self.count_split(); })
      .def("register_mem_pool", [](NcclBackend&, const py::object&, bool) {}, py::arg("pool"), py::arg("symm") = false)
      .def("deregister_mem_pool", [](NcclBackend&, const py::object&) {})
      .def("get_error", &NcclBackend::getError)
      .def("_set_default_timeout", &NcclBackend::setTimeout, py::arg("timeout"))
      .def("_add_ephemeral_timeout", [](NcclBackend&, std::chrono::milliseconds) {}, py::arg("timeout"))
      .def("_verify_work_timeout", [](NcclBackend& self, const py::object&, std::chrono::milliseconds timeout) { return self.options()->timeout == timeout; }, py::arg("work"), py::arg("timeout"))
      .def("_set_enable_nan_check", [](NcclBackend&, bool) {}, py::arg("enable_nan_check"));
  group.attr("NCCL_CTA_POLICY_DEFAULT") = 0;
  group.attr("NCCL_CTA_POLICY_EFFICIENCY") = 1;
  group.attr("NCCL_CTA_POLICY_ZERO") = 2;
  return group;
}

inline void bind_communication(py::module_& module) {
  module.def("travel_limit_bytes", [] { return known_limit_bytes(c10::kByte); });
  module.def("define_process_group", [module](int64_t global_rank) mutable { return define_process_group(module, global_rank); }, py::arg("global_rank"));
}

}  // namespace maya
