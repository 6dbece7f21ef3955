// The DeviceGuardImplInterface of the emulated CUDA device: devices, streams, events.
#pragma once
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "../recording/recorder.h"
#include "devices.h"

namespace maya {

struct DeviceEvent {
  int64_t id = 0;
  int device = 0;
  int64_t stream = 0;
  int64_t time_ns = 0;
  bool recorded = false;
  bool timing = false;
};

struct StreamOperatorNames {
  int32_t record, wait, event_sync, stream_sync, device_sync;
  static const StreamOperatorNames& instance() {
    static const StreamOperatorNames names = [] {
      auto& recorder = Recorder::instance();
      return StreamOperatorNames{recorder.intern_name("cudaEventRecord"), recorder.intern_name("cudaStreamWaitEvent"),
                                 recorder.intern_name("cudaEventSynchronize"), recorder.intern_name("cudaStreamSynchronize"),
                                 recorder.intern_name("cudaDeviceSynchronize")};
    }();
    return names;
  }
};

// Called before the host waits for a stream, or with stream -1 for a device: whatever of other ranks
// is still on its way there arrives. Set by the communication layer.
using HostWaits = void (*)(int device, int64_t stream);
inline std::atomic<HostWaits>& host_waits_for() {
  static auto* hook = new std::atomic<HostWaits>(nullptr);
  return *hook;
}

inline void synchronize_stream(int device, int64_t stream) {
  if (auto arrive = host_waits_for().load()) arrive(device, stream);
  Recorder::instance().record({.name = StreamOperatorNames::instance().stream_sync, .kind = Kind::StreamSync, .device = device, .stream = stream});
  Recorder::instance().with_clock([&](Clock& clock) { clock.host_waits(clock.stream_ready_ns(device, stream)); });
}

inline void synchronize_device(int device) {
  if (auto arrive = host_waits_for().load()) arrive(device, -1);
  Recorder::instance().record({.name = StreamOperatorNames::instance().device_sync, .kind = Kind::DeviceSync, .device = device});
  Recorder::instance().with_clock([&](Clock& clock) { clock.host_waits(clock.device_ready_ns(device)); });
}

inline bool stream_is_idle(int device, int64_t stream) {
  return Recorder::instance().with_clock([&](Clock& clock) {
    // A query costs the host time too; without that a polling loop would never end.
    clock.host_now_ns += clock.host_gap_ns;
    return clock.stream_ready_ns(device, stream) <= clock.host_now_ns;
  });
}

inline double elapsed_ms(const DeviceEvent* start, const DeviceEvent* end) {
  TORCH_CHECK_VALUE(start && end && start->recorded && end->recorded,
                    "Both events must be recorded before calculating elapsed time.");
  TORCH_CHECK_VALUE(start->timing && end->timing,
                    "Both events must be created with argument 'enable_timing=True'.");
  return static_cast<double>(end->time_ns - start->time_ns) * 1e-6;
}

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  using Device = c10::Device;
  using Stream = c10::Stream;

  static Device cuda(int index) { return Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)); }

  c10::DeviceType type() const override { return c10::kCUDA; }
  Device exchangeDevice(Device device) const override {
    auto previous = current_device_index;
    make_current(device.index());
    return cuda(previous);
  }
  Device getDevice() const override { return cuda(current_device_index); }
  void setDevice(Device device) const override { make_current(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) current_device_index = device.index();
  }
  Stream getStream(Device device) const override {
    int index = resolve(device.index());
    return Stream(Stream::UNSAFE, cuda(index), current_streams[index]);
  }
  Stream getDefaultStream(Device device) const override { return Stream(Stream::DEFAULT, cuda(resolve(device.index()))); }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? -1 : 0);
  }
  Stream getNewStream(Device device, int priority) const override {
    int index = resolve(device.index());
    check_ordinal(index);
    return Stream(Stream::UNSAFE, cuda(index), next_pool_stream(index, priority));
  }
  Stream exchangeStream(Stream stream) const override {
    auto& current = current_streams[stream.device_index()];
    auto previous = std::exchange(current, stream.id());
    return Stream(Stream::UNSAFE, stream.device(), previous);
  }
  void* getStreamNativeHandle(const Stream stream) const override { return reinterpret_cast<void*>(stream.id()); }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<DeviceEvent*>(event); }
  void record(void** event, const Stream& stream, const c10::DeviceIndex, const c10::EventFlag flag) const override {
    static std::atomic<int64_t> next_event{0};
    if (!*event) {
      auto* created = new DeviceEvent;
      created->id = next_event++;
      created->timing = flag == c10::EventFlag::BACKEND_DEFAULT;
      *event = created;
    }
    auto* recorded = static_cast<DeviceEvent*>(*event);
    recorded->device = stream.device_index();
    recorded->stream = stream.id();
    recorded->recorded = true;
    Recorder::instance().record({.name = StreamOperatorNames::instance().record, .kind = Kind::EventRecord,
                                 .device = recorded->device, .stream = recorded->stream, .event = recorded->id});
    Recorder::instance().with_clock([&](Clock& clock) { recorded->time_ns = clock.record_event(recorded->device, recorded->stream); });
  }
  void block(void* event, const Stream& stream) const override {
    auto* waited = static_cast<DeviceEvent*>(event);
    if (!waited || !waited->recorded) return;  // as in CUDA: a no-op
    Recorder::instance().record({.name = StreamOperatorNames::instance().wait, .kind = Kind::StreamWait,
                                 .device = stream.device_index(), .stream = stream.id(), .event = waited->id});
    Recorder::instance().with_clock([&](Clock& clock) { clock.stream_waits(stream.device_index(), stream.id(), waited->time_ns); });
  }
  bool queryEvent(void* event) const override {
    auto* queried = static_cast<DeviceEvent*>(event);
    if (!queried || !queried->recorded) return true;
    return Recorder::instance().with_clock([&](Clock& clock) {
      clock.host_now_ns += clock.host_gap_ns;  // see stream_is_idle
      return queried->time_ns <= clock.host_now_ns;
    });
  }
  void synchronizeEvent(void* event) const override {
    auto* waited = static_cast<DeviceEvent*>(event);
    if (!waited || !waited->recorded) return;
    Recorder::instance().record({.name = StreamOperatorNames::instance().event_sync, .kind = Kind::EventSync,
                                 .device = waited->device, .stream = waited->stream, .event = waited->id});
    Recorder::instance().with_clock([&](Clock& clock) { clock.host_waits(waited->time_ns); });
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return elapsed_ms(static_cast<DeviceEvent*>(start), static_cast<DeviceEvent*>(end));
  }

  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(machine().device_count); }
  bool queryStream(const Stream& stream) const override { return stream_is_idle(stream.device_index(), stream.id()); }
  void synchronizeStream(const Stream& stream) const override { synchronize_stream(stream.device_index(), stream.id()); }
  void synchronizeDevice(const c10::DeviceIndex device) const override { synchronize_device(resolve(device)); }
  bool isStreamCapturing(const Stream&) const override { return stream_capturing(); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    record_stream_use(data, stream.id());
  }
  c10::DeviceCapability getDeviceCapability(Device) const override { return c10::DeviceCapability(); }

  static void record_stream_use(const c10::DataPtr& data, int64_t stream);  // device_allocators.h
};

}  // namespace maya
