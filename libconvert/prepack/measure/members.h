#pragma once

// How measured structures are written and read (MeasuredAs): by one list of their members, which
// serves both ways.
//
//     template <>
//     inline constexpr std::tuple kMembers<Figure> = {ByKey{"cosine", &Figure::cosine}, …};
//     template struct MeasuredAs<Figure>;  // where others write or read it
//
// A member is a number, a truth value, a text, texts, a hash, an error, a structure that is written
// the same way, or an optional or a list of these. What is none is null.

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/measure/measurements.h"

namespace prepack {

template <typename Place>
struct ByKey {
  std::string_view key;
  Place place;  // a pointer to the member, or a function that returns a reference to it
};
template <typename Place>
ByKey(std::string_view, Place) -> ByKey<Place>;

template <typename T>
inline constexpr std::tuple<> kMembers;

// A member that is an object.
template <typename T>
struct MeasuredMember {
  static Json Write(const T& value) { return MeasuredAs<T>::Write(value); }
  static T Read(JsonFields& fields, std::string_view key) {
    JsonFields members = fields.In(key);
    return MeasuredAs<T>::Read(members);
  }
};

template <std::unsigned_integral T>
struct MeasuredMember<T> {
  static Json Write(T value) { return value; }
  static T Read(JsonFields& fields, std::string_view key) {
    return static_cast<T>(fields.Uint(key, 0, std::numeric_limits<T>::max()));
  }
};

template <>
struct MeasuredMember<bool> {
  static Json Write(bool value) { return value; }
  static bool Read(JsonFields& fields, std::string_view key) { return fields.Bool(key); }
};

template <std::floating_point T>
struct MeasuredMember<T> {
  static Json Write(T value) { return ExactNumber(value); }
  static T Read(JsonFields& fields, std::string_view key) {
    return static_cast<T>(ReadExactNumber(fields, key));
  }
};

template <>
struct MeasuredMember<std::string> {
  static Json Write(const std::string& text) { return text; }
  static std::string Read(JsonFields& fields, std::string_view key) { return fields.Text(key); }
};

template <>
struct MeasuredMember<std::vector<std::string>> {
  static Json Write(const std::vector<std::string>& texts) { return texts; }
  static std::vector<std::string> Read(JsonFields& fields, std::string_view key) {
    return fields.Texts(key);
  }
};

template <>
struct MeasuredMember<Hash128> {
  static Json Write(const Hash128& hash) { return hash.Hex(); }
  static Hash128 Read(JsonFields& fields, std::string_view key) { return ReadHash(fields, key); }
};

template <>
struct MeasuredMember<Status> {
  static Json Write(const Status& status) {
    return status.ok() ? Json(nullptr) : StatusJson(status);
  }
  static Status Read(JsonFields& fields, std::string_view key) {
    return fields.IsNull(key) ? Status() : ReadStatus(fields.In(key));
  }
};

template <typename T>
struct MeasuredMember<std::optional<T>> {
  static Json Write(const std::optional<T>& value) {
    return value ? MeasuredMember<T>::Write(*value) : Json(nullptr);
  }
  static std::optional<T> Read(JsonFields& fields, std::string_view key) {
    if (fields.IsNull(key)) return std::nullopt;
    return MeasuredMember<T>::Read(fields, key);
  }
};

// A list of structures.
template <typename T>
struct MeasuredMember<std::vector<T>> {
  static Json Write(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(MeasuredAs<T>::Write(value));
    return list;
  }
  static std::vector<T> Read(JsonFields& fields, std::string_view key) {
    std::vector<T> values;
    const Json* list = fields.Array(key);
    for (size_t i = 0; i < list->size() && fields.ok(); ++i) {
      JsonFields members = fields.In((*list)[i], key, i);
      values.push_back(MeasuredAs<T>::Read(members));
    }
    return values;
  }
};

template <typename T>
Json MeasuredAs<T>::Write(const T& value) {
  Json json = Json::object();
  const auto write = [&](const auto& member) {
    const auto& part = std::invoke(member.place, value);
    json[std::string(member.key)] = MeasuredMember<std::decay_t<decltype(part)>>::Write(part);
  };
  std::apply([&](const auto&... members) { (write(members), ...); }, kMembers<T>);
  return json;
}

template <typename T>
T MeasuredAs<T>::Read(JsonFields& fields) {
  T value{};
  const auto read = [&](const auto& member) {
    auto& part = std::invoke(member.place, value);
    part = MeasuredMember<std::decay_t<decltype(part)>>::Read(fields, member.key);
  };
  std::apply([&](const auto&... members) { (read(members), ...); }, kMembers<T>);
  return value;
}

}  // namespace prepack
