// Text → dense id tables. Not locked: the recorder's mutex guards every use.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace maya {

class InternTable {
 public:
  int32_t intern(std::string_view text) {
    auto found = ids_.find(text);
    if (found != ids_.end()) return found->second;
    // A deque never moves its elements, so the map's views stay valid.
    texts_.emplace_back(text);
    auto id = static_cast<int32_t>(texts_.size() - 1);
    ids_.emplace(texts_.back(), id);
    return id;
  }
  const std::string& at(int32_t id) const { return texts_.at(id); }
  size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace maya
