// The shape cache's key: everything an operator's output shapes, its recorded metadata and its cost
// can depend on, as a flat list of words. Whole keys are compared, never hashes alone.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/SmallVector.h>

#include <cstring>

namespace maya {

// How a scalar argument enters the key.
enum class ScalarKeying : uint8_t {
  Exact,  // its value decides shapes (dims, sizes, arange's bounds)
  Class,  // only its type and whether it is 0 or 1 (learning rates, eps, dropout's p)
};

struct Key {
  c10::SmallVector<int64_t, 64> words;
  size_t hash = 0;
  bool operator==(const Key& other) const { return words == other.words; }
  void seal() {
    uint64_t h = 1469598103934665603ull;
    for (int64_t word : words) {
      h ^= static_cast<uint64_t>(word);
      h *= 0x9E3779B97F4A7C15ull;
      h ^= h >> 32;
    }
    hash = h;
  }
};
struct KeyHash {
  size_t operator()(const Key& key) const { return key.hash; }
};

inline int64_t bits_of(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline int64_t class_of(double value) { return value == 0 ? 0 : value == 1 ? 1 : 2; }

class KeyBuilder {
 public:
  explicit KeyBuilder(Key& key) : words_(key.words) {}

  void word(int64_t value) { words_.push_back(value); }

  void tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return word(kUndefined);
    auto* impl = tensor.unsafeGetTensorImpl();
    auto sizes = impl->sizes();
    auto strides = impl->strides();
    word((static_cast<int64_t>(sizes.size()) << 40) | (static_cast<int64_t>(tensor.scalar_type()) << 24) |
         (static_cast<int64_t>(tensor.device().type()) << 8) | (static_cast<int64_t>(impl->is_conj()) << 3) | (static_cast<int64_t>(impl->is_neg()) << 2) |
         (static_cast<int64_t>(impl->is_wrapped_number()) << 1) | 1);
    words_.append(sizes.begin(), sizes.end());
    words_.append(strides.begin(), strides.end());
  }

  // False for a value that no cached result may depend on silently (an unknown kind of argument).
  bool value(const at::IValue& value, ScalarKeying keying) {
    if (value.isTensor()) return tensor(value.toTensor()), true;
    if (value.isNone()) return word(kNone), true;
    if (value.isInt()) return scalar(kInt, value.toInt(), static_cast<double>(value.toInt()), keying), true;
    if (value.isBool()) return word(kBool), word(value.toBool()), true;
    if (value.isDouble()) return scalar(kDouble, bits_of(value.toDouble()), value.toDouble(), keying), true;
    if (value.isIntList()) {
      auto list = value.toIntList();
      word(kIntList), word(static_cast<int64_t>(list.size()));
      for (int64_t item : list) word(item);
      return true;
    }
    if (value.isBoolList()) {
      auto list = value.toBoolList();
      word(kBoolList), word(static_cast<int64_t>(list.size()));
      for (bool item : list) word(item);
      return true;
    }
    if (value.isDoubleList()) {
      auto list = value.toDoubleList();
      word(kDoubleList), word(static_cast<int64_t>(list.size()));
      for (double item : list) word(bits_of(item));
      return true;
    }
    if (value.isTensorList()) {
      auto list = value.toTensorList();
      word(kTensorList), word(static_cast<int64_t>(list.size()));
      for (const at::Tensor& item : list) tensor(item);
      return true;
    }
    if (value.isOptionalTensorList()) {
      auto list = value.toOptionalTensorList();
      word(kOptionalTensorList), word(static_cast<int64_t>(list.size()));
      for (const std::optional<at::Tensor>& item : list) item ? tensor(*item) : word(kNone);
      return true;
    }
    if (value.isDevice()) return word(kDevice), word(static_cast<int64_t>(value.toDevice().type())), true;
    if (value.isGenerator()) return word(kGenerator), true;
    if (value.isString()) {
      const auto& text = value.toStringRef();
      word(kString), word(static_cast<int64_t>(text.size()));
      for (size_t at = 0; at < text.size(); at += 8) {
        int64_t chunk = 0;
        std::memcpy(&chunk, text.data() + at, std::min<size_t>(8, text.size() - at));
        word(chunk);
      }
      return true;
    }
    if (value.isComplexDouble()) {
      auto number = value.toComplexDouble();
      return word(kComplex), word(bits_of(number.real())), word(bits_of(number.imag())), true;
    }
    if (value.isList()) {
      auto list = value.toListRef();
      word(kList), word(static_cast<int64_t>(list.size()));
      for (const auto& item : list)
        if (!this->value(item, keying)) return false;
      return true;
    }
    return false;
  }

 private:
  enum : int64_t {
    kUndefined = -7, kNone = -1, kInt = -20, kBool = -21, kDouble = -24, kIntList = -30, kBoolList = -31, kDoubleList = -32,
    kTensorList = -33, kOptionalTensorList = -34, kDevice = -35, kGenerator = -36, kString = -37, kComplex = -38, kList = -39,
  };
  void scalar(int64_t tag, int64_t exact, double value, ScalarKeying keying) {
    word(tag);
    word(keying == ScalarKeying::Exact ? exact : class_of(value));
  }
  c10::SmallVectorImpl<int64_t>& words_;
};

}  // namespace maya
