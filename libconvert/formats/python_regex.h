#ifndef PREPACK_FORMATS_PYTHON_REGEX_H_
#define PREPACK_FORMATS_PYTHON_REGEX_H_

#include <string>
#include <string_view>

#include "base/result.h"

namespace prepack {

// A pattern of Python's `re` module as one for PCRE2:
//
//     \Z      the very end of the text; PCRE2 spells it \z
//     {,n}    at most n times; PCRE2 before 10.43 takes it literally
//     \v      the character; PCRE2 takes it for a class
//
// Escapes and groups that only PCRE2 knows (\K, \h, \Q, (?|…), (?<name>…), (*VERB) …) are errors in
// Python: kMalformed. What Python has and PCRE2 reads otherwise (\N{name}, \u, POSIX classes as
// plain characters) is kUnsupported. `where` names the place of the pattern.
Result<std::string> PythonRegexForPcre(std::string_view pattern, std::string_view where);

}  // namespace prepack

#endif  // PREPACK_FORMATS_PYTHON_REGEX_H_
