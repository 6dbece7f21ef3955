// Sets of operator names.
#pragma once
#include <string_view>
#include <unordered_set>

namespace maya {

using NameSet = std::unordered_set<std::string_view>;

}  // namespace maya
