#ifndef ONEDNN_CONSUMER_JSON_FIELDS_H_
#define ONEDNN_CONSUMER_JSON_FIELDS_H_

// Fields of a JSON file that must be there and of the right type. nlohmann/json alone would turn -1
// into a large size and keep the last of two equal keys without a word.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// Throws Refusal when the text is no JSON, or an object has a key twice.
nlohmann::json ParseJson(const std::string& text, const std::string& file);

// An object, and where it stands, for messages. All functions throw Refusal.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string where);

  bool Has(const std::string& key) const { return object_->contains(key); }
  std::string String(const std::string& key) const;
  bool Bool(const std::string& key) const;
  uint64_t Uint(const std::string& key) const;
  std::vector<uint64_t> Uints(const std::string& key) const;
  std::vector<std::vector<uint64_t>> UintLists(const std::string& key) const;
  Fields Object(const std::string& key) const;
  bool IsNull(const std::string& key) const { return At(key).is_null(); }
  std::vector<std::string> Keys() const;
  const std::string& where() const { return where_; }

 private:
  const nlohmann::json& At(const std::string& key) const;

  const nlohmann::json* object_;
  std::string where_;
};

#endif  // ONEDNN_CONSUMER_JSON_FIELDS_H_
