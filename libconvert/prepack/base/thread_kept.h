#pragma once

#include <pthread.h>

#include <memory>

namespace prepack {

// A T of this thread's own, made when the thread first asks and kept until it ends; `Tag` tells
// several of one type apart. Unlike a thread_local with a destructor, it never waits for another
// thread that loads a library: the C++ runtime takes the loader's lock to note such a destructor,
// and loading oneDNN takes longer than much of what is done meanwhile.
template <typename T, typename Tag>
T& KeptByThread() {
  static const class Key {
   public:
    Key() {
      is_made_ = pthread_key_create(&key_, [](void* kept) {
                   std::unique_ptr<T>(static_cast<T*>(kept)).reset();
                 }) == 0;
    }
    ~Key() {
      if (is_made_) pthread_key_delete(key_);
    }
    Key(const Key&) = delete;
    Key& operator=(const Key&) = delete;

    // Without a key the value stays until the process ends.
    void FreeAtEnd(T* kept) const {
      if (is_made_) pthread_setspecific(key_, kept);
    }

   private:
    pthread_key_t key_ = {};
    bool is_made_ = false;
  } key;
  thread_local T* kept = nullptr;
  if (kept == nullptr) {
    kept = std::make_unique<T>().release();
    key.FreeAtEnd(kept);
  }
  return *kept;
}

}  // namespace prepack
