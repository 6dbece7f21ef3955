// The process groups that communicate: their names, members, and how many collectives each has seen.
// Not locked: the recorder's mutex guards every use.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace maya {

class Communicators {
 public:
  struct Members {
    std::string name;
    std::vector<int64_t> ranks;  // global, in group order
    int32_t collectives = 0;
  };

  // A group that was destroyed and made anew with the same name and members goes on counting.
  int32_t index_of(const std::string& name, const std::vector<int64_t>& ranks) {
    for (size_t i = 0; i < all_.size(); ++i)
      if (all_[i].name == name && all_[i].ranks == ranks) return static_cast<int32_t>(i);
    all_.push_back({name, ranks});
    return static_cast<int32_t>(all_.size() - 1);
  }
  int32_t next_sequence(int32_t communicator) { return all_.at(communicator).collectives++; }
  const std::vector<Members>& all() const { return all_; }

 private:
  std::vector<Members> all_;
};

}  // namespace maya
