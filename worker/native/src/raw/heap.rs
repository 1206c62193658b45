//! Prepares the heap of glibc's malloc before a fork, so that workers allocate on pages of their own.
//!
//! Why: the template's heap is full of small gaps, and each allocation that a worker puts into one turns a
//! page of shared data into a private one. Ten workers of five threads with a Sinatra app, after 6,000
//! requests (`rack.allocator = "system"`, PSS of all processes): 109 MiB with filled gaps, 123 MiB without
//! (medians of five interleaved runs, Debian 12, Ruby 3.1).
//!
//! How: [`settle`] allocates blocks of each small size as long as malloc finds room for them inside the heap,
//! and keeps them in a list whose links are in the blocks. The gaps are lost until [`release_gaps`]: less
//! than a page each, once for all workers.
//!
//! Relies on two properties of glibc's main arena: it ends at `sbrk(0)`, and malloc prefers a fitting gap to
//! the free end of the heap. Checked with glibc 2.36. If malloc chooses otherwise, the first block of each
//! size lies outside the gaps and is freed again: nothing is kept. That is so with jemalloc, whose blocks are
//! not below `sbrk(0)`.
//!
//! Off by build condition: without glibc, or with `--cfg firebrick_portable`. Then workers copy more pages,
//! and nothing else changes. Test: `worker/native/tests/heap_test.rb`.

#[cfg(all(target_env = "gnu", not(firebrick_portable)))]
pub(crate) use glibc::{release_gaps, settle};

#[cfg(not(all(target_env = "gnu", not(firebrick_portable))))]
pub(crate) fn settle() {}

#[cfg(not(all(target_env = "gnu", not(firebrick_portable))))]
pub(crate) fn release_gaps() {}

#[cfg(all(target_env = "gnu", not(firebrick_portable)))]
mod glibc {
    use std::sync::atomic::{AtomicPtr, Ordering};

    /// The largest number of large gaps that [`settle`] sets aside.
    const LARGE_GAPS: usize = 4096;

    /// The blocks in the gaps: a list whose links are in the blocks. Only the template changes it.
    static GAPS: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());

    /// Fills the small gaps.
    pub(crate) fn settle() {
        // SAFETY: each block has room for a pointer, is not touched otherwise, and is freed at most once.
        unsafe {
            let end = libc::sbrk(0) as usize;
            // mallinfo2(3) is missing from older versions. Of the size of the free end of the heap, the low
            // 32 bits are enough.
            let top = end.saturating_sub(libc::mallinfo().keepcost as u32 as usize);
            let in_gap = |block: *mut libc::c_void| (1..top).contains(&(block as usize));
            // Large gaps are taken first, so that small blocks do not come from them, and freed at the end.
            let mut large = Vec::with_capacity(LARGE_GAPS);
            for size in (12..17).rev().map(|bits| 1_usize << bits) {
                while large.len() < LARGE_GAPS {
                    let block = libc::malloc(size);
                    if !in_gap(block) {
                        libc::free(block);
                        break;
                    }
                    large.push(block);
                }
            }
            for size in (24..=4000).rev().step_by(16) {
                loop {
                    let block = libc::malloc(size);
                    if !in_gap(block) {
                        libc::free(block);
                        break;
                    }
                    block.cast::<*mut libc::c_void>().write(GAPS.swap(block, Ordering::Relaxed));
                }
            }
            large.into_iter().for_each(|block| libc::free(block));
        }
    }

    /// Frees the filled gaps. A template that was a worker has new gaps in its heap.
    pub(crate) fn release_gaps() {
        // SAFETY: the list consists of blocks that `settle` has allocated; it is emptied before they are freed.
        unsafe {
            let mut block = GAPS.swap(std::ptr::null_mut(), Ordering::Relaxed);
            while !block.is_null() {
                let next = block.cast::<*mut libc::c_void>().read();
                libc::free(block);
                block = next;
            }
        }
    }
}
