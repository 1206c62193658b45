/* How much a VM and a step may take: memory, which is counted where mruby asks for it, and time, which ends there, too.
 *
 * All memory of a VM is in a heap of its own, so that one that cannot be closed any more can still be given back whole.
 */
#include "vm.h"

static void *allocate(fb_vm *vm, void *old, size_t size) {
  size_t before = old ? mi_usable_size(old) : 0;
  if (size == 0) {
    vm->heap -= before;
    mi_free(old);
    return NULL;
  }
  if (vm->first_allocation == 0) vm->first_allocation = size;
  if (size > before) {
    if (vm->heap > vm->ceiling || size - before > vm->ceiling - vm->heap) return NULL;
#ifndef MRB_USE_DEBUG_HOOK
    /* Without the hook this is the only place where code that runs away can be interrupted. mruby tries again after a
     * collection, so it takes two failures to raise; not more, so that what rescues has memory to do so. */
    if (atomic_load_explicit(&vm->interrupted, memory_order_relaxed) > 0) {
      atomic_fetch_sub_explicit(&vm->interrupted, 1, memory_order_relaxed);
      return NULL;
    }
#endif
  }
  void *new = mi_theap_realloc(vm->theap, old, size);
  if (new) vm->heap += mi_usable_size(new) - before;
  return new;
}

#if MRUBY_RELEASE_NO >= 40000
/* Since 4.0 all VMs of a process share one allocator, which a program may bring along: whose memory it is, is known by what
 * this thread entered last. */
static _Thread_local fb_vm *owner;

void *mrb_basic_alloc_func(void *old, size_t size) { return allocate(owner, old, size); }

mrb_state *memory_open(fb_vm *vm) {
  owner = vm;
  return mrb_open();
}

static void own(fb_vm *vm) { owner = vm; }
#else
static void *allocate_for(mrb_state *mrb, void *old, size_t size, void *user) {
  (void)mrb;
  return allocate(user, old, size);
}

mrb_state *memory_open(fb_vm *vm) { return mrb_open_allocf(allocate_for, vm); }

static void own(fb_vm *vm) { (void)vm; }
#endif

void memory_for_task(fb_vm *vm) {
  size_t room = vm->config.heap_limit > vm->heap ? vm->config.heap_limit - vm->heap : 0;
  vm->ceiling = vm->heap + (room < vm->config.task_limit ? room : vm->config.task_limit);
  atomic_store_explicit(&vm->interrupted, 0, memory_order_relaxed);
}

/* The driver may always finish what it does: refusing memory here would break the VM, not the task. */
void memory_for_driver(fb_vm *vm) {
  own(vm);
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

void fb_limit(fb_vm *vm, size_t task_limit) { vm->config.task_limit = task_limit; }

size_t fb_heap(fb_vm *vm) { return vm->heap; }

void fb_collect(fb_vm *vm) {
  memory_for_driver(vm);
  mrb_full_gc(vm->mrb);
}

void fb_interrupt(fb_vm *vm) { atomic_store_explicit(&vm->interrupted, 2, memory_order_relaxed); }
