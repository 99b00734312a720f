// Memory of whole vectors: aligned to cache lines, and in huge pages where the system has them. A long map is hundreds of
// megabytes, which are read across rows: with pages of 4 KiB a search at 8,192 tokens waits a quarter of its time for the
// addresses of pages.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace geoattn::GEOATTN_ISA {

template <class T> struct AlignedAllocator {
    using value_type = T;
    static constexpr std::align_val_t ALIGNMENT{64};

    AlignedAllocator() = default;
    template <class U> AlignedAllocator(const AlignedAllocator<U>&) {}
    T* allocate(std::size_t n) {
        void* memory = ::operator new(n * sizeof(T), ALIGNMENT);
        if (n * sizeof(T) >= LARGE) ask_for_huge_pages(memory, n * sizeof(T));
        return static_cast<T*>(memory);
    }
    void deallocate(T* p, std::size_t) { ::operator delete(p, ALIGNMENT); }
    template <class U> bool operator==(const AlignedAllocator<U>&) const { return true; }

  private:
    static constexpr std::size_t LARGE = std::size_t(4) << 20, PAGE = 4096;

    // A wish, not more: the system may have no huge pages.
    static void ask_for_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t size) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
        const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(memory), from = (at + PAGE - 1) / PAGE * PAGE;
        madvise(reinterpret_cast<void*>(from), (at + size - from) / PAGE * PAGE, MADV_HUGEPAGE);
#endif
    }
};
template <class T> using Row = std::vector<T, AlignedAllocator<T>>;

}  // namespace geoattn::GEOATTN_ISA
