// Native half of the core library, as far as tests need it. Built three times (libjavacore, libopenjdk,
// libicu_jni): the runtime insists on loading all three; only the first carries functions (-DJAVACORE). ICU,
// BoringSSL, fdlibm, sockets: not there.
#include <jni.h>
extern "C" JNIEXPORT jint JNI_OnLoad(JavaVM *, void *) { return JNI_VERSION_1_6; }
#ifdef JAVACORE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <net/if.h>
#include <netdb.h>
#include <time.h>
#include <unistd.h>
#include <string>
#include <vector>

#define N(ret, cls, name) extern "C" JNIEXPORT ret JNICALL Java_##cls##_##name

static void fail(JNIEnv *e, const char *cls, const char *msg) {
    jclass c = e->FindClass(cls);
    if (c) e->ThrowNew(c, msg);
}
static void fail_errno(JNIEnv *e, const char *fn) {
    int err = errno;
    jclass c = e->FindClass("android/system/ErrnoException");
    if (!c) return;
    jobject x =
        e->NewObject(c, e->GetMethodID(c, "<init>", "(Ljava/lang/String;I)V"), e->NewStringUTF(fn), err);
    if (x) e->Throw((jthrowable)x);
}
static int check(JNIEnv *e, const char *fn, int64_t r) {
    if (r == -1) fail_errno(e, fn);
    return (int)r;
}
struct Utf {
    JNIEnv *e;
    jstring s;
    const char *p;
    Utf(JNIEnv *e, jstring s) : e(e), s(s), p(s ? e->GetStringUTFChars(s, nullptr) : nullptr) {}
    ~Utf() {
        if (p) e->ReleaseStringUTFChars(s, p);
    }
    operator const char *() const { return p ? p : ""; }
};
static jfieldID fd_field(JNIEnv *e) {
    static jfieldID f;
    if (!f) {
        jclass c = e->FindClass("java/io/FileDescriptor");
        f = e->GetFieldID(c, "descriptor", "I");
    }
    return f;
}
static int fd_of(JNIEnv *e, jobject o) { return o ? e->GetIntField(o, fd_field(e)) : -1; }
static jobject new_fd(JNIEnv *e, int fd) {
    if (fd < 0) return nullptr;
    jclass c = e->FindClass("java/io/FileDescriptor");
    jobject o = e->NewObject(c, e->GetMethodID(c, "<init>", "()V"));
    if (o) e->SetIntField(o, fd_field(e), fd);
    return o;
}
static jobjectArray strings(JNIEnv *e, const std::vector<std::string> &v) {
    jobjectArray a = e->NewObjectArray((jsize)v.size(), e->FindClass("java/lang/String"), nullptr);
    for (size_t i = 0; a && i < v.size(); i++) {
        jstring s = e->NewStringUTF(v[i].c_str());
        e->SetObjectArrayElement(a, (jsize)i, s);
        e->DeleteLocalRef(s);
    }
    return a;
}

// ---- java.lang ----
N(jlong, java_lang_System, currentTimeMillis)(JNIEnv *, jclass) {
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}
N(jlong, java_lang_System, nanoTime)(JNIEnv *, jclass) {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
N(jstring, java_lang_System, mapLibraryName)(JNIEnv *e, jclass, jstring n) {
    Utf u(e, n);
    return e->NewStringUTF(("lib" + std::string(u) + ".so").c_str());
}
N(void, java_lang_System, log)(JNIEnv *e, jclass, jchar level, jstring m, jthrowable) {
    Utf u(e, m);
    fprintf(stderr, "%c System: %s\n", (char)level, (const char *)u);
}
N(jobjectArray, java_lang_System, specialProperties)(JNIEnv *e, jclass) {
    char cwd[PATH_MAX];
    const char *l = getenv("LD_LIBRARY_PATH");
    return strings(e, {std::string("user.dir=") + (getcwd(cwd, sizeof cwd) ? cwd : "/"),
                       "android.zlib.version=0", "android.openssl.version=none",
                       std::string("java.library.path=") + (l ? l : "")});
}
static void set_static(JNIEnv *e, jclass c, const char *f, const char *d, jobject v) {
    e->SetStaticObjectField(c, e->GetStaticFieldID(c, f, d), v);
}
N(void, java_lang_System, setIn0)(JNIEnv *e, jclass c, jobject v) {
    set_static(e, c, "in", "Ljava/io/InputStream;", v);
}
N(void, java_lang_System, setOut0)(JNIEnv *e, jclass c, jobject v) {
    set_static(e, c, "out", "Ljava/io/PrintStream;", v);
}
N(void, java_lang_System, setErr0)(JNIEnv *e, jclass c, jobject v) {
    set_static(e, c, "err", "Ljava/io/PrintStream;", v);
}

N(void, java_lang_Runtime, nativeExit)(JNIEnv *, jclass, jint code) {
    fflush(nullptr);
    exit(code);
}
N(jlong, java_lang_Runtime, maxMemory)(JNIEnv *, jobject) { return 256 << 20; }
N(jlong, java_lang_Runtime, totalMemory)(JNIEnv *, jobject) { return 64 << 20; }
N(jlong, java_lang_Runtime, freeMemory)(JNIEnv *, jobject) { return 32 << 20; }
static void gc(JNIEnv *e) {
    // Heap::CollectGarbage(false), what System.gc() is on a device; SignalCatcher::HandleSigUsr1 is the
    // exported function that calls it and uses nothing of its object (it logs one line)
    static auto f = (void (*)(void *))dlsym(RTLD_DEFAULT, "_ZN3art13SignalCatcher13HandleSigUsr1Ev");
    if (f) {
        f(nullptr);
        return;
    }
    jclass c = e->FindClass("dalvik/system/VMRuntime");
    jobject r =
        e->CallStaticObjectMethod(c, e->GetStaticMethodID(c, "getRuntime", "()Ldalvik/system/VMRuntime;"));
    e->CallVoidMethod(r, e->GetMethodID(c, "concurrentGC", "()V"));
}
N(void, java_lang_Runtime, nativeGc)(JNIEnv *e, jobject) { gc(e); }
N(void, java_lang_Runtime, gc)(JNIEnv *e, jobject) { gc(e); }
N(void, java_lang_Runtime, runFinalization0)(JNIEnv *e, jclass) {
    jclass c = e->FindClass("dalvik/system/VMRuntime");
    e->CallStaticVoidMethod(c, e->GetStaticMethodID(c, "runFinalization", "(J)V"), (jlong)0);
}
N(jint, java_lang_Runtime, availableProcessors)(JNIEnv *, jobject) {
    return (jint)sysconf(_SC_NPROCESSORS_ONLN);
}
N(jstring, java_lang_Runtime, nativeLoad)(JNIEnv *e, jclass, jstring file, jobject loader, jclass caller) {
    // bool art::JavaVMExt::LoadNativeLibrary(JNIEnv*, std::string const&, jobject, jclass, std::string*)
    typedef bool (*Load)(JavaVM *, JNIEnv *, const std::string &, jobject, jclass, std::string *);
    static Load load =
        (Load)dlsym(RTLD_DEFAULT, "_ZN3art9JavaVMExt17LoadNativeLibraryEP7_JNIEnvRKNSt7__cxx1112basic_"
                                  "stringIcSt11char_traitsIcESaIcEEEP8_jobjectP7_jclassPS8_");
    Utf u(e, file);
    JavaVM *vm;
    e->GetJavaVM(&vm);
    std::string err;
    if (!load) return e->NewStringUTF("JavaVMExt::LoadNativeLibrary: no such symbol");
    return load(vm, e, std::string(u), loader, caller, &err) ? nullptr : e->NewStringUTF(err.c_str());
}
N(jobjectArray, java_lang_ProcessEnvironment, environ)(JNIEnv *e, jclass) {
    std::vector<std::string> v;
    for (char **p = environ; *p; p++)
        if (char *q = strchr(*p, '=')) {
            v.emplace_back(*p, q - *p);
            v.emplace_back(q + 1);
        }
    jobjectArray a = e->NewObjectArray((jsize)v.size(), e->FindClass("[B"), nullptr);
    for (size_t i = 0; i < v.size(); i++) {
        jbyteArray b = e->NewByteArray((jsize)v[i].size());
        e->SetByteArrayRegion(b, 0, (jsize)v[i].size(), (const jbyte *)v[i].data());
        e->SetObjectArrayElement(a, (jsize)i, b);
        e->DeleteLocalRef(b);
    }
    return a;
}
template <class A, class B> static A bits(B b) {
    A a;
    static_assert(sizeof a == sizeof b, "");
    memcpy(&a, &b, sizeof a);
    return a;
}
N(jint, java_lang_Float, floatToRawIntBits)(JNIEnv *, jclass, jfloat f) { return bits<jint>(f); }
N(jfloat, java_lang_Float, intBitsToFloat)(JNIEnv *, jclass, jint i) { return bits<jfloat>(i); }
N(jlong, java_lang_Double, doubleToRawLongBits)(JNIEnv *, jclass, jdouble d) { return bits<jlong>(d); }
N(jdouble, java_lang_Double, longBitsToDouble)(JNIEnv *, jclass, jlong l) { return bits<jdouble>(l); }
#define M1(n, f)                                                                                             \
    N(jdouble, java_lang_Math, n)(JNIEnv *, jclass, jdouble a) { return f(a); }                              \
    N(jdouble, java_lang_StrictMath, n)(JNIEnv *, jclass, jdouble a) { return f(a); }
#define M2(n, f)                                                                                             \
    N(jdouble, java_lang_Math, n)(JNIEnv *, jclass, jdouble a, jdouble b) { return f(a, b); }                \
    N(jdouble, java_lang_StrictMath, n)(JNIEnv *, jclass, jdouble a, jdouble b) { return f(a, b); }
M1(sin, sin)
M1(cos, cos) M1(tan, tan) M1(asin, asin) M1(acos, acos) M1(atan, atan) M1(exp, exp) M1(log, log)
    M1(log10, log10) M1(sqrt, sqrt) M1(cbrt, cbrt) M1(ceil, ceil) M1(floor, floor) M1(rint, rint)
        M1(sinh, sinh) M1(cosh, cosh) M1(tanh, tanh) M1(expm1, expm1) M1(log1p, log1p)
            M2(IEEEremainder, remainder) M2(atan2, atan2) M2(pow, pow) M2(hypot, hypot)

    // Character: ASCII and Latin-1 only
    static bool up(int c) {
    return (c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7);
}
static bool lo(int c) { return (c >= 'a' && c <= 'z') || (c >= 0xdf && c <= 0xff && c != 0xf7); }
static bool dig(int c) { return c >= '0' && c <= '9'; }
static int tolo(int c) { return up(c) ? c + 32 : c; }
static int toup(int c) { return lo(c) && c != 0xdf && c != 0xff ? c - 32 : c; }
static bool ws(int c) { return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31); }
#define CH(ret, n, x)                                                                                        \
    N(ret, java_lang_Character, n)(JNIEnv *, jclass, jint c) { return (ret)(x); }
CH(jboolean, isLowerCaseImpl, lo(c))
CH(jboolean, isUpperCaseImpl, up(c)) CH(jboolean, isTitleCaseImpl, 0) CH(jboolean, isDigitImpl, dig(c))
    CH(jboolean, isDefinedImpl, 1) CH(jboolean, isLetterImpl, up(c) || lo(c))
        CH(jboolean, isLetterOrDigitImpl, up(c) || lo(c) || dig(c))
            CH(jboolean, isAlphabeticImpl, up(c) || lo(c)) CH(jboolean, isIdeographicImpl, 0)
                CH(jboolean, isUnicodeIdentifierStartImpl, up(c) || lo(c))
                    CH(jboolean, isUnicodeIdentifierPartImpl, up(c) || lo(c) || dig(c) || c == '_')
                        CH(jboolean, isIdentifierIgnorableImpl, 0) CH(jint, toLowerCaseImpl, tolo(c))
                            CH(jint, toUpperCaseImpl, toup(c)) CH(jint, toTitleCaseImpl, toup(c))
                                CH(jint, getNumericValueImpl, dig(c) ? c - '0' : -1)
                                    CH(jboolean, isSpaceCharImpl, c == ' ' || c == 0xa0)
                                        CH(jboolean, isWhitespaceImpl, ws(c)) CH(jint, getTypeImpl,
                                                                                 up(c)    ? 1
                                                                                 : lo(c)  ? 2
                                                                                 : dig(c) ? 9
                                                                                 : c < 32 ? 15
                                                                                          : 24)
                                            CH(jbyte, getDirectionalityImpl, 0)
                                                CH(jboolean, isMirroredImpl, 0)
                                                    N(jint, java_lang_Character, digitImpl)(JNIEnv *, jclass,
                                                                                            jint c, jint r) {
    int v = dig(c) ? c - '0' : c < 128 && (up(c) || lo(c)) ? tolo(c) - 'a' + 10 : -1;
    return v < r ? v : -1;
}
N(jstring, java_lang_Character, getNameImpl)(JNIEnv *, jclass, jint) { return nullptr; }

// ---- java.io ----
#define NOP(cls, n)                                                                                          \
    N(void, cls, n)(JNIEnv *, jclass) {}
NOP(java_io_FileInputStream, initIDs)
NOP(java_io_FileOutputStream, initIDs) NOP(java_io_UnixFileSystem, initIDs)
    NOP(java_io_ObjectStreamClass, initNative) NOP(java_io_RandomAccessFile, initIDs)
        N(jboolean, java_io_FileDescriptor, isSocket)(JNIEnv *, jclass, jint fd) {
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode);
}
N(void, java_io_FileDescriptor, sync)(JNIEnv *e, jobject o) {
    if (fsync(fd_of(e, o))) fail(e, "java/io/SyncFailedException", strerror(errno));
}
static int stream_fd(JNIEnv *e, jobject o) {
    jclass c = e->GetObjectClass(o);
    return fd_of(e, e->GetObjectField(o, e->GetFieldID(c, "fd", "Ljava/io/FileDescriptor;")));
}
N(jint, java_io_FileInputStream, available0)(JNIEnv *e, jobject o) {
    int fd = stream_fd(e, o);
    struct stat s;
    off_t at = lseek(fd, 0, SEEK_CUR);
    return fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && at >= 0 && s.st_size > at ? (jint)(s.st_size - at) : 0;
}
N(jlong, java_io_FileInputStream, skip0)(JNIEnv *e, jobject o, jlong n) {
    int fd = stream_fd(e, o);
    off_t a = lseek(fd, 0, SEEK_CUR), b = a < 0 ? -1 : lseek(fd, n, SEEK_CUR);
    if (b < 0) {
        fail(e, "java/io/FileInputStream$UseManualSkipException", "");
        return 0;
    }
    return b - a;
}
static std::string file_path(JNIEnv *e, jobject f) {
    jclass c = e->FindClass("java/io/File");
    Utf u(e, (jstring)e->GetObjectField(f, e->GetFieldID(c, "path", "Ljava/lang/String;")));
    return std::string(u);
}
N(jstring, java_io_UnixFileSystem, canonicalize0)(JNIEnv *e, jobject, jstring p) {
    Utf u(e, p);
    char b[PATH_MAX];
    return realpath(u, b) ? e->NewStringUTF(b) : p;
}
N(jint, java_io_UnixFileSystem, getBooleanAttributes0)(JNIEnv *e, jobject, jstring p) {
    Utf u(e, p);
    struct stat s;
    return stat(u, &s) ? 0 : 1 | (S_ISREG(s.st_mode) ? 2 : 0) | (S_ISDIR(s.st_mode) ? 4 : 0);
}
N(jlong, java_io_UnixFileSystem, getLastModifiedTime0)(JNIEnv *e, jobject, jobject f) {
    struct stat s;
    return stat(file_path(e, f).c_str(), &s) ? 0 : s.st_mtime * 1000LL;
}
N(jobjectArray, java_io_UnixFileSystem, list0)(JNIEnv *e, jobject, jobject f) {
    DIR *d = opendir(file_path(e, f).c_str());
    if (!d) return nullptr;
    std::vector<std::string> v;
    while (dirent *x = readdir(d))
        if (strcmp(x->d_name, ".") && strcmp(x->d_name, "..")) v.push_back(x->d_name);
    closedir(d);
    return strings(e, v);
}
N(jboolean, java_io_UnixFileSystem, createDirectory0)(JNIEnv *e, jobject, jobject f) {
    return mkdir(file_path(e, f).c_str(), 0777) == 0;
}
N(jboolean, java_io_UnixFileSystem, createFileExclusively0)(JNIEnv *e, jobject, jstring p) {
    Utf u(e, p);
    int fd = open(u, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        if (errno != EEXIST) fail(e, "java/io/IOException", strerror(errno));
        return 0;
    }
    close(fd);
    return 1;
}
N(jboolean, java_io_Console, istty)(JNIEnv *, jclass) { return isatty(0) && isatty(1); }

// ---- libcore.util, libcore.io ----
N(void, libcore_util_NativeAllocationRegistry, applyFreeFunction)(JNIEnv *, jclass, jlong f, jlong p) {
    ((void (*)(void *))f)((void *)p);
}
NOP(libcore_io_AsynchronousCloseMonitor, signalBlockedThreads)
template <class T> static T peek(jlong a) {
    T v;
    memcpy(&v, (void *)a, sizeof v);
    return v;
}
template <class T> static void poke(jlong a, T v) { memcpy((void *)a, &v, sizeof v); }
N(jbyte, libcore_io_Memory, peekByte)(JNIEnv *, jclass, jlong a) { return peek<jbyte>(a); }
N(jint, libcore_io_Memory, peekIntNative)(JNIEnv *, jclass, jlong a) { return peek<jint>(a); }
N(jlong, libcore_io_Memory, peekLongNative)(JNIEnv *, jclass, jlong a) { return peek<jlong>(a); }
N(jshort, libcore_io_Memory, peekShortNative)(JNIEnv *, jclass, jlong a) { return peek<jshort>(a); }
N(void, libcore_io_Memory, pokeByte)(JNIEnv *, jclass, jlong a, jbyte v) { poke(a, v); }
N(void, libcore_io_Memory, pokeIntNative)(JNIEnv *, jclass, jlong a, jint v) { poke(a, v); }
N(void, libcore_io_Memory, pokeLongNative)(JNIEnv *, jclass, jlong a, jlong v) { poke(a, v); }
N(void, libcore_io_Memory, pokeShortNative)(JNIEnv *, jclass, jlong a, jshort v) { poke(a, v); }
N(void, libcore_io_Memory, peekByteArray)(JNIEnv *e, jclass, jlong a, jbyteArray d, jint o, jint n) {
    e->SetByteArrayRegion(d, o, n, (const jbyte *)a);
}
N(void, libcore_io_Memory, pokeByteArray)(JNIEnv *e, jclass, jlong a, jbyteArray s, jint o, jint n) {
    e->GetByteArrayRegion(s, o, n, (jbyte *)a);
}
struct Buf { // a Java byte[] or a direct buffer
    JNIEnv *e;
    jobject o;
    jbyteArray arr = nullptr;
    jbyte *p = nullptr;
    Buf(JNIEnv *e, jobject o) : e(e), o(o) {
        static jclass ba = (jclass)e->NewGlobalRef(e->FindClass("[B"));
        if (o && e->IsInstanceOf(o, ba)) {
            arr = (jbyteArray)o;
            p = e->GetByteArrayElements(arr, nullptr);
        } else if (o)
            p = (jbyte *)e->GetDirectBufferAddress(o);
    }
    ~Buf() {
        if (arr) e->ReleaseByteArrayElements(arr, p, 0);
    }
};
N(void, libcore_io_Memory, memmove)(JNIEnv *e, jclass, jobject d, jint dO, jobject s, jint sO, jlong n) {
    std::vector<jbyte> tmp;
    {
        Buf b(e, s);
        tmp.assign(b.p + sO, b.p + sO + n);
    }
    Buf b(e, d);
    memcpy(b.p + dO, tmp.data(), n);
}

#define L(ret, n) N(ret, libcore_io_Linux, n)
#define ARGS JNIEnv *e, jobject
L(jboolean, access)(ARGS, jstring p, jint m) {
    Utf u(e, p);
    if (access(u, m)) fail_errno(e, "access");
    return 1;
}
L(void, chmod)(ARGS, jstring p, jint m) {
    Utf u(e, p);
    check(e, "chmod", chmod(u, m));
}
L(void, close)(ARGS, jobject f) {
    int fd = fd_of(e, f);
    e->SetIntField(f, fd_field(e), -1);
    check(e, "close", close(fd));
}
L(void, android_1fdsan_1exchange_1owner_1tag)(ARGS, jobject, jlong, jlong) { (void)e; }
L(jlong, android_1fdsan_1get_1owner_1tag)(ARGS, jobject) {
    (void)e;
    return 0;
}
L(jobject, dup)(ARGS, jobject f) { return new_fd(e, check(e, "dup", dup(fd_of(e, f)))); }
L(jobject, dup2)(ARGS, jobject f, jint n) { return new_fd(e, check(e, "dup2", dup2(fd_of(e, f), n))); }
L(jint, fcntlInt)(ARGS, jobject f, jint c, jint a) { return check(e, "fcntl", fcntl(fd_of(e, f), c, a)); }
L(jint, fcntlVoid)(ARGS, jobject f, jint c) { return check(e, "fcntl", fcntl(fd_of(e, f), c)); }
L(void, fsync)(ARGS, jobject f) { check(e, "fsync", fsync(fd_of(e, f))); }
L(void, fdatasync)(ARGS, jobject f) { check(e, "fdatasync", fdatasync(fd_of(e, f))); }
L(void, ftruncate)(ARGS, jobject f, jlong n) { check(e, "ftruncate", ftruncate(fd_of(e, f), n)); }
static jobject mkstat(JNIEnv *e, const struct stat &s) {
    jclass c = e->FindClass("android/system/StructStat");
    return e->NewObject(c, e->GetMethodID(c, "<init>", "(JJIJIIJJJJJJJ)V"), (jlong)s.st_dev, (jlong)s.st_ino,
                        (jint)s.st_mode, (jlong)s.st_nlink, (jint)s.st_uid, (jint)s.st_gid, (jlong)s.st_rdev,
                        (jlong)s.st_size, (jlong)s.st_atime, (jlong)s.st_mtime, (jlong)s.st_ctime,
                        (jlong)s.st_blksize, (jlong)s.st_blocks);
}
L(jobject, stat)(ARGS, jstring p) {
    Utf u(e, p);
    struct stat s;
    if (stat(u, &s)) {
        fail_errno(e, "stat");
        return nullptr;
    }
    return mkstat(e, s);
}
L(jobject, lstat)(ARGS, jstring p) {
    Utf u(e, p);
    struct stat s;
    if (lstat(u, &s)) {
        fail_errno(e, "lstat");
        return nullptr;
    }
    return mkstat(e, s);
}
L(jobject, fstat)(ARGS, jobject f) {
    struct stat s;
    if (fstat(fd_of(e, f), &s)) {
        fail_errno(e, "fstat");
        return nullptr;
    }
    return mkstat(e, s);
}
L(jstring, getenv)(ARGS, jstring n) {
    Utf u(e, n);
    char *v = getenv(u);
    return v ? e->NewStringUTF(v) : nullptr;
}
L(void, setenv)(ARGS, jstring n, jstring v, jboolean o) {
    Utf a(e, n), b(e, v);
    check(e, "setenv", setenv(a, b, o));
}
L(void, unsetenv)(ARGS, jstring n) {
    Utf a(e, n);
    check(e, "unsetenv", unsetenv(a));
}
L(jobjectArray, environ)(ARGS) {
    std::vector<std::string> v;
    for (char **p = environ; *p; p++) v.push_back(*p);
    return strings(e, v);
}
#define ID(n)                                                                                                \
    L(jint, n)(ARGS) {                                                                                       \
        (void)e;                                                                                             \
        return (jint)n();                                                                                    \
    }
ID(getegid) ID(geteuid) ID(getgid) ID(getuid) ID(getpid) ID(getppid) L(jint, gettid)(ARGS) {
    (void)e;
    return (jint)syscall(SYS_gettid);
}
static jobject mkpw(JNIEnv *e, const char *name, int uid, int gid, const char *dir, const char *sh) {
    jclass c = e->FindClass("android/system/StructPasswd");
    return e->NewObject(
        c, e->GetMethodID(c, "<init>", "(Ljava/lang/String;IILjava/lang/String;Ljava/lang/String;)V"),
        e->NewStringUTF(name), uid, gid, e->NewStringUTF(dir), e->NewStringUTF(sh));
}
L(jobject, getpwuid)(ARGS, jint uid) {
    return mkpw(e, uid ? "user" : "root", uid, (int)getgid(), "/", "/bin/sh");
}
L(jobject, getpwnam)(ARGS, jstring n) {
    Utf u(e, n);
    return mkpw(e, u, (int)getuid(), (int)getgid(), "/", "/bin/sh");
}
L(jboolean, isatty)(ARGS, jobject f) { return isatty(fd_of(e, f)) == 1; }
L(void, kill)(ARGS, jint p, jint s) { check(e, "kill", kill(p, s)); }
L(jlong, lseek)(ARGS, jobject f, jlong o, jint w) {
    jlong r = lseek(fd_of(e, f), o, w);
    if (r < 0) fail_errno(e, "lseek");
    return r;
}
L(void, mkdir)(ARGS, jstring p, jint m) {
    Utf u(e, p);
    check(e, "mkdir", mkdir(u, m));
}
L(jlong, mmap)(ARGS, jlong a, jlong n, jint p, jint fl, jobject f, jlong o) {
    void *r = mmap((void *)a, n, p, fl, fd_of(e, f), o);
    if (r == MAP_FAILED) fail_errno(e, "mmap");
    return (jlong)r;
}
L(void, munmap)(ARGS, jlong a, jlong n) { check(e, "munmap", munmap((void *)a, n)); }
L(void, msync)(ARGS, jlong a, jlong n, jint f) { check(e, "msync", msync((void *)a, n, f)); }
L(jobject, open)(ARGS, jstring p, jint f, jint m) {
    Utf u(e, p);
    return new_fd(e, check(e, "open", open(u, f, m)));
}
L(jobjectArray, pipe2)(ARGS, jint f) {
    int p[2];
    if (pipe2(p, f)) {
        fail_errno(e, "pipe2");
        return nullptr;
    }
    jobjectArray a = e->NewObjectArray(2, e->FindClass("java/io/FileDescriptor"), nullptr);
    for (int i = 0; i < 2; i++) e->SetObjectArrayElement(a, i, new_fd(e, p[i]));
    return a;
}
L(jint, prctl)(ARGS, jint o, jlong a, jlong b, jlong c, jlong d) {
    return check(e, "prctl", prctl(o, a, b, c, d));
}
L(jint, readBytes)(ARGS, jobject f, jobject b, jint o, jint n) {
    int r;
    {
        Buf x(e, b);
        r = (int)read(fd_of(e, f), x.p + o, n);
    }
    return check(e, "read", r);
}
L(jint, writeBytes)(ARGS, jobject f, jobject b, jint o, jint n) {
    int r;
    {
        Buf x(e, b);
        r = (int)write(fd_of(e, f), x.p + o, n);
    }
    return check(e, "write", r);
}
L(jint, preadBytes)(ARGS, jobject f, jobject b, jint o, jint n, jlong at) {
    int r;
    {
        Buf x(e, b);
        r = (int)pread(fd_of(e, f), x.p + o, n, at);
    }
    return check(e, "pread", r);
}
L(jint, pwriteBytes)(ARGS, jobject f, jobject b, jint o, jint n, jlong at) {
    int r;
    {
        Buf x(e, b);
        r = (int)pwrite(fd_of(e, f), x.p + o, n, at);
    }
    return check(e, "pwrite", r);
}
L(jstring, readlink)(ARGS, jstring p) {
    Utf u(e, p);
    char b[PATH_MAX];
    ssize_t r = readlink(u, b, sizeof b - 1);
    if (r < 0) {
        fail_errno(e, "readlink");
        return nullptr;
    }
    b[r] = 0;
    return e->NewStringUTF(b);
}
L(jstring, realpath)(ARGS, jstring p) {
    Utf u(e, p);
    char b[PATH_MAX];
    if (!realpath(u, b)) {
        fail_errno(e, "realpath");
        return nullptr;
    }
    return e->NewStringUTF(b);
}
L(void, remove)(ARGS, jstring p) {
    Utf u(e, p);
    check(e, "remove", remove(u));
}
L(void, unlink)(ARGS, jstring p) {
    Utf u(e, p);
    check(e, "unlink", unlink(u));
}
L(void, rename)(ARGS, jstring a, jstring b) {
    Utf u(e, a), v(e, b);
    check(e, "rename", rename(u, v));
}
L(void, symlink)(ARGS, jstring a, jstring b) {
    Utf u(e, a), v(e, b);
    check(e, "symlink", symlink(u, v));
}
L(void, socketpair)(ARGS, jint d, jint t, jint p, jobject a, jobject b) {
    int s[2];
    if (socketpair(d, t, p, s)) {
        fail_errno(e, "socketpair");
        return;
    }
    e->SetIntField(a, fd_field(e), s[0]);
    e->SetIntField(b, fd_field(e), s[1]);
}
L(jstring, strerror)(ARGS, jint n) { return e->NewStringUTF(strerror(n)); }
L(jstring, strsignal)(ARGS, jint n) { return e->NewStringUTF(strsignal(n)); }
L(jlong, sysconf)(ARGS, jint n) {
    (void)e;
    return sysconf(n);
}
L(jobject, uname)(ARGS) {
    utsname u;
    uname(&u);
    jclass c = e->FindClass("android/system/StructUtsname");
    return e->NewObject(
        c,
        e->GetMethodID(
            c, "<init>",
            "(Ljava/lang/String;Ljava/lang/String;Ljava/lang/String;Ljava/lang/String;Ljava/lang/String;)V"),
        e->NewStringUTF(u.sysname), e->NewStringUTF(u.nodename), e->NewStringUTF(u.release),
        e->NewStringUTF(u.version), e->NewStringUTF(u.machine));
}

// ---- android.system.OsConstants: those not listed stay 0 ----
N(void, android_system_OsConstants, initConstants)(JNIEnv *e, jclass c) {
#define K(n)                                                                                                 \
    {                                                                                                        \
        #n, n                                                                                                \
    }
    static const struct {
        const char *n;
        long v;
    } t[] = {K(AF_INET),
             K(AF_INET6),
             K(AF_UNIX),
             K(AF_UNSPEC),
             K(SOCK_STREAM),
             K(SOCK_DGRAM),
             K(SOL_SOCKET),
             K(SHUT_RD),
             K(SHUT_WR),
             K(SHUT_RDWR),
             K(IPPROTO_TCP),
             K(IPPROTO_UDP),
             K(EACCES),
             K(EAGAIN),
             K(EBADF),
             K(EBUSY),
             K(ECONNREFUSED),
             K(ECONNRESET),
             K(EEXIST),
             K(EFAULT),
             K(EFBIG),
             K(EINTR),
             K(EINVAL),
             K(EIO),
             K(EISDIR),
             K(ELOOP),
             K(EMFILE),
             K(ENAMETOOLONG),
             K(ENFILE),
             K(ENODEV),
             K(ENOENT),
             K(ENOMEM),
             K(ENOSPC),
             K(ENOSYS),
             K(ENOTDIR),
             K(ENOTEMPTY),
             K(ENOTSUP),
             K(ENXIO),
             K(EPERM),
             K(EPIPE),
             K(ERANGE),
             K(EROFS),
             K(ESRCH),
             K(ETIMEDOUT),
             K(EXDEV),
             K(F_DUPFD),
             K(F_DUPFD_CLOEXEC),
             K(F_GETFD),
             K(F_SETFD),
             K(F_GETFL),
             K(F_SETFL),
             K(FD_CLOEXEC),
             K(F_OK),
             K(R_OK),
             K(W_OK),
             K(X_OK),
             K(MAP_ANONYMOUS),
             K(MAP_FIXED),
             K(MAP_PRIVATE),
             K(MAP_SHARED),
             K(MS_ASYNC),
             K(MS_SYNC),
             K(MS_INVALIDATE),
             K(O_ACCMODE),
             K(O_APPEND),
             K(O_CLOEXEC),
             K(O_CREAT),
             K(O_DIRECT),
             K(O_EXCL),
             K(O_NOCTTY),
             K(O_NOFOLLOW),
             K(O_NONBLOCK),
             K(O_RDONLY),
             K(O_RDWR),
             K(O_SYNC),
             K(O_DSYNC),
             K(O_TRUNC),
             K(O_WRONLY),
             K(POLLERR),
             K(POLLHUP),
             K(POLLIN),
             K(POLLNVAL),
             K(POLLOUT),
             K(PROT_EXEC),
             K(PROT_NONE),
             K(PROT_READ),
             K(PROT_WRITE),
             K(SEEK_CUR),
             K(SEEK_END),
             K(SEEK_SET),
             K(SIGABRT),
             K(SIGALRM),
             K(SIGKILL),
             K(SIGPIPE),
             K(SIGQUIT),
             K(SIGSEGV),
             K(SIGTERM),
             K(SIGUSR1),
             K(SIGUSR2),
             K(S_IFBLK),
             K(S_IFCHR),
             K(S_IFDIR),
             K(S_IFIFO),
             K(S_IFLNK),
             K(S_IFMT),
             K(S_IFREG),
             K(S_IFSOCK),
             K(S_IRUSR),
             K(S_IRWXU),
             K(S_IRWXG),
             K(S_IRWXO),
             K(S_IWUSR),
             K(S_IXUSR),
             K(STDIN_FILENO),
             K(STDOUT_FILENO),
             K(STDERR_FILENO),
             K(_SC_PAGESIZE),
             K(_SC_PAGE_SIZE),
             K(_SC_NPROCESSORS_CONF),
             K(_SC_NPROCESSORS_ONLN),
             K(_SC_CLK_TCK)};
    for (auto &k : t) {
        jfieldID f = e->GetStaticFieldID(c, k.n, "I");
        if (f)
            e->SetStaticIntField(c, f, (jint)k.v);
        else
            e->ExceptionClear();
    }
}

// ---- libcore.icu.ICU: English only ----
#define ICU(ret, n) N(ret, libcore_icu_ICU, n)
ICU(jstring, getIcuVersion)(JNIEnv *e, jclass) { return e->NewStringUTF("0"); }
ICU(jstring, getUnicodeVersion)(JNIEnv *e, jclass) { return e->NewStringUTF("0"); }
ICU(jstring, getCldrVersion)(JNIEnv *e, jclass) { return e->NewStringUTF("0"); }
ICU(jstring, getTZDataVersion)(JNIEnv *e, jclass) { return e->NewStringUTF("0"); }
ICU(jstring, getDefaultLocale)(JNIEnv *e, jclass) { return e->NewStringUTF("en_US"); }
ICU(void, setDefaultLocale)(JNIEnv *, jclass, jstring) {}
ICU(jstring, addLikelySubtags)(JNIEnv *, jclass, jstring s) { return s; }
ICU(jstring, getScript)(JNIEnv *e, jclass, jstring) { return e->NewStringUTF(""); }
ICU(jint, getCurrencyFractionDigits)(JNIEnv *, jclass, jstring) { return 2; }
ICU(jint, getCurrencyNumericCode)(JNIEnv *, jclass, jstring) { return 840; }
ICU(jstring, getCurrencyCode)(JNIEnv *e, jclass, jstring) { return e->NewStringUTF("USD"); }
ICU(jstring, getCurrencySymbol)(JNIEnv *e, jclass, jstring, jstring) { return e->NewStringUTF("$"); }
#define LOCALES(n)                                                                                           \
    ICU(jobjectArray, n)(JNIEnv * e, jclass) { return strings(e, {"en-US", "en"}); }
LOCALES(getAvailableLocalesNative)
LOCALES(getAvailableCalendarLocalesNative) LOCALES(getAvailableDateFormatLocalesNative)
    LOCALES(getAvailableNumberFormatLocalesNative) LOCALES(getAvailableCollatorLocalesNative)
        LOCALES(getAvailableBreakIteratorLocalesNative) static jstring
    map(JNIEnv *e, jstring s, int (*f)(int)) {
    jsize n = e->GetStringLength(s);
    std::vector<jchar> v(n + 1);
    e->GetStringRegion(s, 0, n, v.data());
    for (auto &c : v) c = (jchar)f(c);
    return e->NewString(v.data(), n);
}
ICU(jstring, toLowerCase)(JNIEnv *e, jclass, jstring s, jstring) { return map(e, s, tolo); }
ICU(jstring, toUpperCase)(JNIEnv *e, jclass, jstring s, jstring) { return map(e, s, toup); }
ICU(jboolean, initLocaleDataNative)(JNIEnv *e, jclass, jstring, jobject d) {
    jclass c = e->GetObjectClass(d);
    auto str = [&](const char *f, const char *v) {
        e->SetObjectField(d, e->GetFieldID(c, f, "Ljava/lang/String;"), e->NewStringUTF(v));
    };
    auto chr = [&](const char *f, char v) { e->SetCharField(d, e->GetFieldID(c, f, "C"), (jchar)v); };
    auto arr = [&](const char *f, std::vector<std::string> v) {
        e->SetObjectField(d, e->GetFieldID(c, f, "[Ljava/lang/String;"), strings(e, v));
    };
    chr("zeroDigit", '0');
    chr("decimalSeparator", '.');
    chr("groupingSeparator", ',');
    chr("patternSeparator", ';');
    chr("monetarySeparator", '.');
    str("percent", "%");
    str("perMill", "o/oo");
    str("minusSign", "-");
    str("exponentSeparator", "E");
    str("infinity", "Infinity");
    str("NaN", "NaN");
    str("currencySymbol", "$");
    str("internationalCurrencySymbol", "USD");
    str("numberPattern", "#,##0.###");
    str("integerPattern", "#,##0");
    str("currencyPattern", "$#,##0.00");
    str("percentPattern", "#,##0%");
    arr("amPm", {"AM", "PM"});
    arr("eras", {"BC", "AD"});
    std::vector<std::string> m{"January", "February", "March",     "April",   "May",      "June",
                               "July",    "August",   "September", "October", "November", "December"},
        w{"", "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    arr("longMonthNames", m);
    arr("shortMonthNames", m);
    arr("longStandAloneMonthNames", m);
    arr("shortStandAloneMonthNames", m);
    arr("longWeekdayNames", w);
    arr("shortWeekdayNames", w);
    arr("longStandAloneWeekdayNames", w);
    arr("shortStandAloneWeekdayNames", w);
    return 1;
}
#endif
