#pragma once

// A reference to an object that can be called (not to a plain function), for parameters: unlike a
// std::function it owns nothing and never allocates. What it refers to must live longer, as a
// lambda does that is written into the call.

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace prepack {

template <typename Signature>
class FunctionRef;

template <typename Returned, typename... Arguments>
class FunctionRef<Returned(Arguments...)> {
 public:
  template <typename Callable>
  requires(!std::same_as<std::remove_cvref_t<Callable>, FunctionRef> &&
           std::is_invocable_r_v<Returned, Callable&, Arguments...>)
      FunctionRef(Callable&& callable)  // NOLINT(bugprone-forwarding-reference-overload)
      : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Arguments... arguments) -> Returned {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(
              std::forward<Arguments>(arguments)...);
        }) {}

  Returned operator()(Arguments... arguments) const {
    return call_(callable_, std::forward<Arguments>(arguments)...);
  }

 private:
  void* callable_;
  Returned (*call_)(void* object, Arguments... arguments);
};

}  // namespace prepack
