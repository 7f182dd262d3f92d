//! The few functions of JNI that the adapter calls, by their places in JNI's tables (jni.h).

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

type Pointer = *mut c_void;

mod place {
    pub(super) const FIND_CLASS: usize = 6;
    pub(super) const EXCEPTION_CLEAR: usize = 17;
    pub(super) const DELETE_LOCAL_REF: usize = 23;
    pub(super) const ALLOC_OBJECT: usize = 27;
    pub(super) const GET_METHOD_ID: usize = 33;
    pub(super) const CALL_INT_METHOD_A: usize = 51;
    pub(super) const CALL_VOID_METHOD_A: usize = 63;
    pub(super) const GET_STATIC_METHOD_ID: usize = 113;
    pub(super) const CALL_STATIC_OBJECT_METHOD_A: usize = 116;
    pub(super) const CALL_STATIC_INT_METHOD_A: usize = 131;
    pub(super) const CALL_STATIC_VOID_METHOD_A: usize = 143;
    pub(super) const MONITOR_ENTER: usize = 217;
    pub(super) const MONITOR_EXIT: usize = 218;
    pub(super) const GET_JAVA_VM: usize = 219;
    pub(super) const EXCEPTION_CHECK: usize = 228;

    pub(super) const DETACH: usize = 5;
    pub(super) const ATTACH_AS_DAEMON: usize = 7;
}

/// A machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vm(usize);

impl Vm {
    pub(crate) fn new(vm: *mut *const [Pointer; 8]) -> Vm {
        Vm(vm.expose_provenance())
    }

    fn pointer(self) -> *mut *const [Pointer; 8] {
        ptr::with_exposed_provenance_mut(self.0)
    }

    /// Runs this in the calling thread, which is none of the machine's, as one of the machine's with this
    /// name. `None`: the machine does not take it.
    ///
    /// # Safety
    /// A machine that lives.
    pub(crate) unsafe fn attached<R>(self, name: &CStr, run: impl FnOnce(Env) -> R) -> Option<R> {
        /// `JavaVMAttachArgs`, and `JNI_VERSION_1_6` (jni.h).
        #[repr(C)]
        struct Arguments {
            version: i32,
            name: *const c_char,
            group: Pointer,
        }
        const VERSION: i32 = 0x0001_0006;
        type Attach = unsafe extern "C" fn(Pointer, *mut Pointer, Pointer) -> i32;
        type Detach = unsafe extern "C" fn(Pointer) -> i32;
        let vm = self.pointer();
        let mut env = ptr::null_mut();
        // SAFETY: JNI's functions at these places are of these types.
        let (attach, detach) = unsafe {
            (
                core::mem::transmute::<Pointer, Attach>((**vm)[place::ATTACH_AS_DAEMON]),
                core::mem::transmute::<Pointer, Detach>((**vm)[place::DETACH]),
            )
        };
        let mut arguments = Arguments {
            version: VERSION,
            name: name.as_ptr(),
            group: ptr::null_mut(),
        };
        // SAFETY: as above; the name lives during the call.
        if unsafe { attach(vm.cast(), &raw mut env, (&raw mut arguments).cast()) } != 0 {
            return None;
        }
        let result = run(Env(env));
        // SAFETY: attached above.
        unsafe { detach(vm.cast()) };
        Some(result)
    }
}

/// The `JNIEnv` of the calling thread, which runs native code. Errors are null and no exception.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Env(Pointer);

/// A class, and methods of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class(Env, Pointer);

impl Env {
    /// # Safety
    /// It is the calling thread's for as long as this is used.
    pub(crate) unsafe fn new(env: Pointer) -> Env {
        Env(env)
    }

    /// # Safety
    /// `T` is the type of the function at this place.
    unsafe fn function<T>(self, place: usize) -> T {
        const { assert!(size_of::<T>() == size_of::<Pointer>()) };
        // SAFETY: JNI's table; by contract.
        unsafe {
            core::mem::transmute_copy::<Pointer, T>(&*(*self.0.cast::<*const Pointer>()).add(place))
        }
    }

    fn clear(self) {
        type Plain = unsafe extern "C" fn(Pointer);
        // SAFETY: of this type.
        unsafe { self.function::<Plain>(place::EXCEPTION_CLEAR)(self.0) };
    }

    /// What a call gives, without the exception that it may have thrown.
    fn cleared<R>(self, result: R) -> R {
        self.clear();
        result
    }

    /// Whether an exception was thrown, which is gone then.
    fn has_thrown(self) -> bool {
        type Check = unsafe extern "C" fn(Pointer) -> u8;
        // SAFETY: of this type.
        let has_thrown = unsafe { self.function::<Check>(place::EXCEPTION_CHECK)(self.0) } != 0;
        self.cleared(has_thrown)
    }

    pub(crate) fn vm(self) -> Option<Vm> {
        type Get = unsafe extern "C" fn(Pointer, *mut *mut *const [Pointer; 8]) -> i32;
        let mut vm = ptr::null_mut();
        // SAFETY: of this type; the place can be written.
        let got = unsafe { self.function::<Get>(place::GET_JAVA_VM)(self.0, &raw mut vm) };
        (got == 0 && !vm.is_null()).then(|| Vm::new(vm))
    }

    pub(crate) fn class(self, name: &CStr) -> Option<Class> {
        type Find = unsafe extern "C" fn(Pointer, *const c_char) -> Pointer;
        // SAFETY: of this type; the name lives during the call.
        let class = unsafe { self.function::<Find>(place::FIND_CLASS)(self.0, name.as_ptr()) };
        self.cleared((!class.is_null()).then_some(Class(self, class)))
    }

    /// Gives a reference back.
    pub(crate) fn delete(self, reference: Pointer) {
        type OfReference = unsafe extern "C" fn(Pointer, Pointer);
        // SAFETY: of this type; null is allowed.
        unsafe { self.function::<OfReference>(place::DELETE_LOCAL_REF)(self.0, reference) };
    }

    /// Runs this with the object's monitor. False: it cannot be had.
    pub(crate) fn with_monitor(self, object: Pointer, run: impl FnOnce()) -> bool {
        type OfObject = unsafe extern "C" fn(Pointer, Pointer) -> i32;
        // SAFETY: of this type, with an object.
        if unsafe { self.function::<OfObject>(place::MONITOR_ENTER)(self.0, object) } != 0 {
            return self.cleared(false);
        }
        run();
        // SAFETY: as above.
        self.cleared(unsafe { self.function::<OfObject>(place::MONITOR_EXIT)(self.0, object) } == 0)
    }
}

impl Class {
    fn id(self, place: usize, name: &CStr, signature: &CStr) -> Option<Pointer> {
        type Get = unsafe extern "C" fn(Pointer, Pointer, *const c_char, *const c_char) -> Pointer;
        let Class(env, class) = self;
        // SAFETY: of this type at either place; the texts live during the call.
        let id =
            unsafe { env.function::<Get>(place)(env.0, class, name.as_ptr(), signature.as_ptr()) };
        env.cleared((!id.is_null()).then_some(id))
    }

    pub(crate) fn has(self, name: &CStr, signature: &CStr) -> bool {
        self.id(place::GET_METHOD_ID, name, signature).is_some()
    }

    /// An object of it, without a constructor's call; null: there is none.
    pub(crate) fn allocate(self) -> Pointer {
        type Allocate = unsafe extern "C" fn(Pointer, Pointer) -> Pointer;
        let Class(env, class) = self;
        // SAFETY: of this type.
        env.cleared(unsafe { env.function::<Allocate>(place::ALLOC_OBJECT)(env.0, class) })
    }

    /// Gives a reference to an object of it back.
    pub(crate) fn free(self, object: Pointer) {
        self.0.delete(object);
    }

    /// Gives the class back.
    pub(crate) fn delete(self) {
        self.0.delete(self.1);
    }

    /// Calls a static method.
    fn call<R>(self, place: usize, name: &CStr, signature: &CStr, arguments: &[u64]) -> Option<R> {
        let id = self.id(place::GET_STATIC_METHOD_ID, name, signature)?;
        // SAFETY: the callers give the place of the signature's result.
        unsafe { self.0.call(place, self.1, id, arguments) }
    }

    pub(crate) fn object(self, name: &CStr, signature: &CStr, arguments: &[u64]) -> Pointer {
        let place = place::CALL_STATIC_OBJECT_METHOD_A;
        let object = self.call(place, name, signature, arguments);
        object.unwrap_or_default()
    }

    pub(crate) fn int(self, name: &CStr, signature: &CStr, arguments: &[u64]) -> Option<i32> {
        self.call(place::CALL_STATIC_INT_METHOD_A, name, signature, arguments)
    }

    /// False: there is no such method, or it throws.
    pub(crate) fn run(self, name: &CStr, signature: &CStr, arguments: &[u64]) -> bool {
        let place = place::CALL_STATIC_VOID_METHOD_A;
        self.call::<()>(place, name, signature, arguments).is_some()
    }

    /// Calls a method of an object. False: there is no such method, or it throws.
    pub(crate) fn run_of(
        self,
        object: Pointer,
        name: &CStr,
        signature: &CStr,
        arguments: &[u64],
    ) -> bool {
        let id = self.id(place::GET_METHOD_ID, name, signature);
        id.is_some_and(|id| {
            // SAFETY: the object is of this class; a result is in a register and nobody looks at it.
            unsafe {
                self.0
                    .call::<()>(place::CALL_VOID_METHOD_A, object, id, arguments)
            }
            .is_some()
        })
    }

    /// The same for a method that gives an `int`.
    pub(crate) fn int_of(self, object: Pointer, name: &CStr, signature: &CStr) -> Option<i32> {
        let id = self.id(place::GET_METHOD_ID, name, signature)?;
        // SAFETY: the object is of this class, and so is the result.
        unsafe { self.0.call(place::CALL_INT_METHOD_A, object, id, &[]) }
    }
}

impl Env {
    /// # Safety
    /// The function at this place calls methods of this result, which the object or class has and which takes
    /// these arguments.
    unsafe fn call<R>(
        self,
        place: usize,
        of: Pointer,
        id: Pointer,
        arguments: &[u64],
    ) -> Option<R> {
        type Call<R> = unsafe extern "C" fn(Pointer, Pointer, Pointer, *const u64) -> R;
        // SAFETY: by contract. A `jvalue` is a word.
        let result = unsafe { self.function::<Call<R>>(place)(self.0, of, id, arguments.as_ptr()) };
        (!self.has_thrown()).then_some(result)
    }
}
