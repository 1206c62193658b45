/* Limits of a VM and a step: memory, counted at each allocation, and time, which is checked there, too. */
#include "vm.h"

#include <stdlib.h>

static size_t size_of(const block *b) { return b ? b->size : 0; }

static void link_block(fb_vm *vm, block *b) {
  b->next = vm->blocks.next;
  b->previous = &vm->blocks;
  b->next->previous = b;
  vm->blocks.next = b;
}

static void unlink_block(block *b) {
  b->next->previous = b->previous;
  b->previous->next = b->next;
}

static void *allocate(fb_vm *vm, void *old, size_t size) {
  block *b = old ? (block *)old - 1 : NULL;
  size_t before = size_of(b);
  if (size == 0) {
    if (!b) return NULL;
    vm->heap -= before;
    unlink_block(b);
    free(b);
    return NULL;
  }
  if (vm->first_allocation == 0) vm->first_allocation = size;
  if (size > SIZE_MAX - sizeof(block)) return NULL;
  size += sizeof(block);
  if (size > before) {
    if (vm->heap + (size - before) > vm->ceiling) return NULL;
#ifndef MRB_USE_DEBUG_HOOK
    /* Without the hook this is the only place where code can be interrupted. mruby tries again after a
     * collection, so it takes two failures to raise; not more, so that `rescue` clauses have memory. */
    if (atomic_load_explicit(&vm->interrupted, memory_order_relaxed) > 0) {
      atomic_fetch_sub_explicit(&vm->interrupted, 1, memory_order_relaxed);
      return NULL;
    }
#endif
  }
  if (b) unlink_block(b);
  block *new = realloc(b, size);
  if (!new) {
    if (b) link_block(vm, b);
    return NULL;
  }
  link_block(vm, new);
  new->size = size;
  vm->heap = vm->heap - before + size;
  return new + 1;
}

#if MRUBY_RELEASE_NO >= 40000
/* Since 4.0 all VMs of a process share one allocator, which a program may replace. The memory belongs to the VM that this thread
 * entered last. */
static _Thread_local fb_vm *owner;

void *mrb_basic_alloc_func(void *old, size_t size) { return allocate(owner, old, size); }

mrb_state *memory_open(fb_vm *vm) {
  owner = vm;
  return mrb_open();
}

static void set_owner(fb_vm *vm) { owner = vm; }
#else
static void *allocate_for(mrb_state *mrb, void *old, size_t size, void *user) {
  (void)mrb;
  return allocate(user, old, size);
}

mrb_state *memory_open(fb_vm *vm) { return mrb_open_allocf(allocate_for, vm); }

static void set_owner(fb_vm *vm) { (void)vm; }
#endif

void memory_for_task(fb_vm *vm) {
  size_t room = vm->config.heap_limit > vm->heap ? vm->config.heap_limit - vm->heap : 0;
  vm->ceiling = vm->heap + (room < vm->config.task_limit ? room : vm->config.task_limit);
  atomic_store_explicit(&vm->interrupted, 0, memory_order_relaxed);
}

/* The driver is not limited: a failure here would break the VM, not the task. */
void memory_for_driver(fb_vm *vm) {
  set_owner(vm);
  vm->ceiling = SIZE_MAX;
  atomic_store_explicit(&vm->interrupted, 0, memory_order_relaxed);
}

#ifdef MRB_USE_DEBUG_HOOK
static void hook(mrb_state *mrb, const struct mrb_irep *irep, const mrb_code *pc, mrb_value *regs) {
  fb_vm *vm = mrb->ud;
  (void)irep;
  (void)pc;
  (void)regs;
  if (atomic_exchange_explicit(&vm->interrupted, 0, memory_order_relaxed)) {
    mrb_raise(mrb, vm->interrupted_class, "the handler ran for too long without waiting");
  }
}

void memory_watch(fb_vm *vm) { vm->mrb->code_fetch_hook = hook; }
#else
void memory_watch(fb_vm *vm) { (void)vm; }
#endif

void memory_discard(fb_vm *vm) {
  for (block *b = vm->blocks.next; b != &vm->blocks;) {
    block *next = b->next;
    free(b);
    b = next;
  }
}

void fb_limit(fb_vm *vm, size_t task_limit) { vm->config.task_limit = task_limit; }

size_t fb_heap(fb_vm *vm) { return vm->heap; }

void fb_collect(fb_vm *vm) {
  memory_for_driver(vm);
  mrb_full_gc(vm->mrb);
}

void fb_interrupt(fb_vm *vm) { atomic_store_explicit(&vm->interrupted, 2, memory_order_relaxed); }
