// A segment that grows and shrinks in place (expandable_segments:True): a long range of addresses,
// of which whole pages (2 MiB for the small pool, the large segment size else) are backed by memory.
#pragma once

#include <cstdint>
#include <vector>

#include "device_memory.h"

namespace maya {

struct MappedRange {
  uint64_t address = 0;
  int64_t bytes = 0;  // 0: nothing was mapped or unmapped
};

class ExpandableSegment {
 public:
  ExpandableSegment(DeviceMemory& memory, uint64_t address, int64_t span_bytes, int64_t page_bytes)
      : memory_(memory), address_(address), page_bytes_(page_bytes), span_bytes_(span_bytes) {}
  ExpandableSegment(const ExpandableSegment&) = delete;
  ExpandableSegment& operator=(const ExpandableSegment&) = delete;

  uint64_t address() const { return address_; }
  int64_t span_bytes() const { return span_bytes_; }
  int64_t page_bytes() const { return page_bytes_; }

  // Backs whole pages from `address` (page-aligned) on; all or nothing.
  MappedRange map(uint64_t address, int64_t bytes) {
    int64_t first = page_floor(address), last = page_ceiling(address + static_cast<uint64_t>(bytes));
    int64_t done = first;
    while (done < last && memory_.take(page_bytes_)) ++done;
    if (done < last) {
      while (done-- > first) memory_.give_back(page_bytes_);
      return {};
    }
    return range(first, last);
  }

  // Gives back the pages that lie wholly inside the range.
  MappedRange unmap(uint64_t address, int64_t bytes) {
    int64_t first = page_ceiling(address), last = page_floor(address + static_cast<uint64_t>(bytes));
    if (first >= last) return {address, 0};
    for (int64_t page = first; page < last; ++page) memory_.give_back(page_bytes_);
    return range(first, last);
  }

 private:
  int64_t page_floor(uint64_t address) const { return static_cast<int64_t>(address - address_) / page_bytes_; }
  int64_t page_ceiling(uint64_t address) const {
    return (static_cast<int64_t>(address - address_) + page_bytes_ - 1) / page_bytes_;
  }
  MappedRange range(int64_t first, int64_t last) const {
    return {address_ + static_cast<uint64_t>(first * page_bytes_), (last - first) * page_bytes_};
  }

  DeviceMemory& memory_;
  uint64_t address_;
  int64_t page_bytes_;
  int64_t span_bytes_;
};

}  // namespace maya
