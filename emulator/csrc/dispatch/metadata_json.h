// One JSON text for each distinct metadata, in the form traces/tables.py documents. Made once, on a
// cache miss.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/function_schema.h>

#include <cmath>
#include <string>

#include "key.h"

namespace maya {

inline void append_json_string(std::string& json, std::string_view text) {
  json += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      json += escaped;
    } else {
      json += c;
    }
  }
  json += '"';
}

// torch.<name> of a dtype.
inline const char* dtype_name(c10::ScalarType type) {
  switch (type) {
    case c10::kByte: return "uint8";
    case c10::kChar: return "int8";
    case c10::kShort: return "int16";
    case c10::kInt: return "int32";
    case c10::kLong: return "int64";
    case c10::kHalf: return "float16";
    case c10::kFloat: return "float32";
    case c10::kDouble: return "float64";
    case c10::kComplexHalf: return "complex32";
    case c10::kComplexFloat: return "complex64";
    case c10::kComplexDouble: return "complex128";
    case c10::kBool: return "bool";
    case c10::kBFloat16: return "bfloat16";
    case c10::kFloat8_e5m2: return "float8_e5m2";
    case c10::kFloat8_e4m3fn: return "float8_e4m3fn";
    case c10::kFloat8_e5m2fnuz: return "float8_e5m2fnuz";
    case c10::kFloat8_e4m3fnuz: return "float8_e4m3fnuz";
    case c10::kFloat8_e8m0fnu: return "float8_e8m0fnu";
    case c10::kFloat4_e2m1fn_x2: return "float4_e2m1fn_x2";
    case c10::kUInt16: return "uint16";
    case c10::kUInt32: return "uint32";
    case c10::kUInt64: return "uint64";
    default: return c10::toString(type);
  }
}

template <class Values>
void append_json_ints(std::string& json, const Values& values) {
  json += '[';
  bool first = true;
  for (int64_t value : values) {
    if (!first) json += ',';
    json += std::to_string(value);
    first = false;
  }
  json += ']';
}

inline void append_json_tensor(std::string& json, c10::ScalarType type, at::IntArrayRef sizes, at::IntArrayRef strides, bool cuda, bool wrapped = false) {
  json += "{\"dtype\":\"";
  json += dtype_name(type);
  json += "\",\"shape\":";
  append_json_ints(json, sizes);
  json += ",\"stride\":";
  append_json_ints(json, strides);
  json += cuda ? ",\"device\":\"cuda\"" : ",\"device\":\"cpu\"";
  if (wrapped) json += ",\"scalar\":true";
  json += '}';
}

inline void append_json_tensor(std::string& json, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    json += "null";
    return;
  }
  append_json_tensor(json, tensor.scalar_type(), tensor.sizes(), tensor.strides(), !tensor.is_cpu(), tensor.unsafeGetTensorImpl()->is_wrapped_number());
}

inline void append_json_number(std::string& json, double value) {
  if (!std::isfinite(value)) {
    json += std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"";
    return;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  json += text;
}

// A scalar that only enters the key by class is written as its class, so that the text does not
// depend on which value came first: 0, 1 or "other".
inline void append_json_scalar(std::string& json, double value, bool integer, ScalarKeying keying) {
  if (keying == ScalarKeying::Class && class_of(value) == 2) {
    json += "\"other\"";
  } else if (integer) {
    json += std::to_string(static_cast<int64_t>(value));
  } else {
    append_json_number(json, value);
  }
}

inline void append_json_value(std::string& json, const at::IValue& value, ScalarKeying keying, bool is_dtype) {
  if (value.isTensor()) return append_json_tensor(json, value.toTensor());
  if (value.isInt() && is_dtype) {
    json += "{\"scalar_type\":\"";
    json += dtype_name(static_cast<c10::ScalarType>(value.toInt()));
    json += "\"}";
    return;
  }
  if (value.isInt()) {
    if (keying == ScalarKeying::Exact) {
      json += std::to_string(value.toInt());
      return;
    }
    return append_json_scalar(json, static_cast<double>(value.toInt()), true, keying);
  }
  if (value.isDouble()) return append_json_scalar(json, value.toDouble(), false, keying);
  if (value.isBool()) {
    json += value.toBool() ? "true" : "false";
  } else if (value.isString()) {
    append_json_string(json, value.toStringRef());
  } else if (value.isIntList()) {
    append_json_ints(json, value.toIntVector());
  } else if (value.isTensorList() || value.isOptionalTensorList() || value.isList()) {
    json += '[';
    bool first = true;
    for (const auto& item : value.toListRef()) {
      if (!first) json += ',';
      append_json_value(json, item, keying, false);
      first = false;
    }
    json += ']';
  } else {
    json += "null";  // none, devices, generators, layouts: nothing a cost depends on
  }
}

}  // namespace maya
