// Prep: makes Java 8 class files ready for dx and for ART's boot class path.
//   java -cp asm.jar:asm-tree.jar Prep.java IN_DIR OUT_DIR [PATCH.txt [OVER_DIR]]   (OVER_DIR: classes that
//   replace IN_DIR's)
// 1. lambdas: every invokedynamic of LambdaMetafactory becomes a small class Owner$$Lambda$N (dx cannot do it
// and the core
//    library has no LambdaMetafactory);
// 2. patches: adds members that the runtime expects and an older core library lacks. One patch per line, '#'
// comments:
//      field  CLASS FLAGS NAME DESC        unless there is one of that name (a wrong descriptor is corrected)
//      native CLASS FLAGS NAME DESC        native method, unless it is there; an existing one with that
//      signature is made native unnative CLASS NAME DESC            drops the body's native flag: becomes an
//      empty method (returns 0 / null) empty  CLASS FLAGS NAME DESC        method with an empty body forward
//      CLASS FLAGS NAME DESC TARGET_OWNER TARGET_NAME   method that calls TARGET with the same arguments
//      (both static,
//                                          or the target static with the receiver first)
//      del    CLASS NAME                   removes a field of that name
//      super  CLASS SUPER                  changes the superclass (constructors call the new one's <init>)
//      uncritical CLASS                    its natives lose @CriticalNative
//      open CLASS                          no longer final
//      access CLASS FLAGS                  adds class access flags (decimal or 0x)
//    FLAGS: any of public,private,protected,static,final,volatile,transient,interface joined by commas, or
//    '-'.
import java.io.*;
import java.nio.file.*;
import java.util.*;
import org.objectweb.asm.*;
import org.objectweb.asm.tree.*;
import static org.objectweb.asm.Opcodes.*;

public class Prep {
    static Path out;
    static Map<String, List<String[]>> patches = new HashMap<>();
    static int lambdas, patched;

    public static void main(String[] a) throws Exception {
        Path in = Paths.get(a[0]);
        out = Paths.get(a[1]);
        if (a.length > 2)
            for (String l : Files.readAllLines(Paths.get(a[2]))) {
                l = l.trim();
                if (l.isEmpty() || l.startsWith("#")) continue;
                String[] w = l.split("\\s+");
                patches.computeIfAbsent(w[1], k -> new ArrayList<>()).add(w);
            }
        Path over = a.length > 3 ? Paths.get(a[3]) : null;
        for (Path dir : over == null ? List.of(in) : List.of(over, in)) try (var s = Files.walk(dir)) {
                for (Path p : (Iterable<Path>)s.filter(f -> f.toString().endsWith(".class"))::iterator)
                    if (dir == over || over == null || !Files.exists(over.resolve(in.relativize(p))))
                        one(Files.readAllBytes(p));
            }
        for (String c : patches.keySet()) System.err.println("Prep: no such class: " + c);
        System.err.println("Prep: " + lambdas + " lambdas, " + patched + " patches");
    }

    static void write(ClassNode n, ClassWriter w) throws IOException {
        n.accept(w);
        Path p = out.resolve(n.name + ".class");
        Files.createDirectories(p.getParent());
        Files.write(p, w.toByteArray());
    }

    static void one(byte[] b) throws Exception {
        ClassNode n = new ClassNode();
        new ClassReader(b).accept(n, 0);
        List<String[]> ps = patches.remove(n.name);
        if (ps != null)
            for (String[] w : ps) patch(n, w);
        lambdas(n);
        write(n, new ClassWriter(ClassWriter.COMPUTE_MAXS));
    }

    static int flags(String s) {
        int f = 0;
        if (!s.equals("-"))
            for (String x : s.split(","))
                f |= switch (x) {
                    case "public" -> ACC_PUBLIC;
                    case "private" -> ACC_PRIVATE;
                    case "protected" -> ACC_PROTECTED;
                    case "static" -> ACC_STATIC;
                    case "final" -> ACC_FINAL;
                    case "volatile" -> ACC_VOLATILE;
                    case "transient" -> ACC_TRANSIENT;
                    case "abstract" -> ACC_ABSTRACT;
                    case "synchronized" -> ACC_SYNCHRONIZED;
                    default -> throw new IllegalArgumentException(x);
                };
        return f;
    }

    static MethodNode find(ClassNode n, String name, String desc) {
        for (MethodNode m : n.methods)
            if (m.name.equals(name) && m.desc.equals(desc)) return m;
        return null;
    }

    static void body(MethodNode m) {
        m.instructions = new InsnList();
        m.tryCatchBlocks = new ArrayList<>();
        m.localVariables = null;
        m.access &= ~ACC_NATIVE;
    }

    static void zero(MethodNode m) {
        body(m);
        Type r = Type.getReturnType(m.desc);
        switch (r.getSort()) {
        case Type.VOID:
            break;
        case Type.LONG:
            m.visitInsn(LCONST_0);
            break;
        case Type.FLOAT:
            m.visitInsn(FCONST_0);
            break;
        case Type.DOUBLE:
            m.visitInsn(DCONST_0);
            break;
        case Type.OBJECT:
        case Type.ARRAY:
            m.visitInsn(ACONST_NULL);
            break;
        default:
            m.visitInsn(ICONST_0);
        }
        m.visitInsn(r.getOpcode(IRETURN));
    }

    static void patch(ClassNode n, String[] w) {
        patched++;
        switch (w[0]) {
        case "field": {
            for (FieldNode f : n.fields)
                if (f.name.equals(w[3])) {
                    if (!f.desc.equals(w[4])) {
                        System.err.println("Prep: " + n.name + "." + f.name + ": " + f.desc + " -> " + w[4]);
                        f.desc = w[4];
                        retype(n, f);
                    }
                    return;
                }
            n.fields.add(new FieldNode(flags(w[2]), w[3], w[4], null, null));
            break;
        }
        case "del":
            n.fields.removeIf(f -> f.name.equals(w[2]));
            break;
        case "native": {
            MethodNode m = find(n, w[3], w[4]);
            if (m == null)
                n.methods.add(new MethodNode(flags(w[2]) | ACC_NATIVE, w[3], w[4], null, null));
            else if ((m.access & ACC_NATIVE) == 0) {
                body(m);
                m.access |= ACC_NATIVE;
            }
            break;
        }
        case "unnative": {
            MethodNode m = find(n, w[2], w[3]);
            if (m == null)
                System.err.println("Prep: no method " + String.join(" ", w));
            else
                zero(m);
            break;
        }
        case "empty":
        case "forward": {
            MethodNode m = find(n, w[3], w[4]);
            if (m == null) n.methods.add(m = new MethodNode(flags(w[2]), w[3], w[4], null, null));
            if (w[0].equals("empty")) {
                zero(m);
                break;
            }
            body(m);
            boolean st = (m.access & ACC_STATIC) != 0;
            int l = 0;
            String d = w[4];
            if (!st) {
                m.visitVarInsn(ALOAD, l++);
                d = "(L" + n.name + ";" + d.substring(1);
            }
            for (Type t : Type.getArgumentTypes(w[4])) {
                m.visitVarInsn(t.getOpcode(ILOAD), l);
                l += t.getSize();
            }
            m.visitMethodInsn(INVOKESTATIC, w[5], w[6], d, false);
            m.visitInsn(Type.getReturnType(w[4]).getOpcode(IRETURN));
            break;
        }
        case "super": {
            for (MethodNode m : n.methods)
                if (m.name.equals("<init>"))
                    for (AbstractInsnNode i : m.instructions)
                        if (i instanceof MethodInsnNode c && c.name.equals("<init>") &&
                            c.owner.equals(n.superName)) {
                            c.owner = w[2];
                            break;
                        }
            n.superName = w[2];
            break;
        }
        case "uncritical":
            uncritical(n);
            break;
        case "open":
            n.access &= ~ACC_FINAL;
            break;
        case "access":
            n.access |= Integer.decode(w[2]);
            break;
        default:
            throw new IllegalArgumentException(w[0]);
        }
    }

    static void uncritical(ClassNode n) {
        for (MethodNode m : n.methods)
            if (m.invisibleAnnotations != null)
                m.invisibleAnnotations.removeIf(
                    x -> x.desc.equals("Ldalvik/annotation/optimization/CriticalNative;"));
    }

    static void retype(ClassNode n, FieldNode f) {
        for (MethodNode m : n.methods)
            for (AbstractInsnNode i : m.instructions)
                if (i instanceof FieldInsnNode x && x.owner.equals(n.name) && x.name.equals(f.name))
                    x.desc = f.desc;
    }

    // ---- lambdas ----
    static void lambdas(ClassNode n) throws Exception {
        int count = 0;
        statics.clear();
        Map<String, String> renamed = new HashMap<>();
        List<MethodNode> accessors = new ArrayList<>();
        for (MethodNode m : new ArrayList<>(n.methods)) {
            if (m.instructions == null) continue;
            for (AbstractInsnNode i : m.instructions.toArray()) {
                if (!(i instanceof InvokeDynamicInsnNode d)) continue;
                if (!d.bsm.getOwner().equals("java/lang/invoke/LambdaMetafactory"))
                    throw new IllegalStateException(n.name + ": " + d.bsm);
                lambdas++;
                String cls = n.name + "$$Lambda$" + count++;
                Type[] caps = Type.getArgumentTypes(d.desc);
                Type iface = Type.getReturnType(d.desc);
                Type sam = (Type)d.bsmArgs[0], inst = (Type)d.bsmArgs[2];
                Handle h = (Handle)d.bsmArgs[1];
                List<String> ifs = new ArrayList<>(List.of(iface.getInternalName()));
                List<String> bridges = new ArrayList<>();
                if (d.bsm.getName().equals("altMetafactory")) {
                    int k = 3, fl = (Integer)d.bsmArgs[k++];
                    if ((fl & 1) != 0 && !ifs.contains("java/io/Serializable"))
                        ifs.add("java/io/Serializable");
                    if ((fl & 2) != 0)
                        for (int c = (Integer)d.bsmArgs[k++]; c > 0; c--) {
                            String x = ((Type)d.bsmArgs[k++]).getInternalName();
                            if (!ifs.contains(x)) ifs.add(x);
                        }
                    if ((fl & 4) != 0)
                        for (int c = (Integer)d.bsmArgs[k++]; c > 0; c--)
                            bridges.add(((Type)d.bsmArgs[k++]).getDescriptor());
                }
                h = reachable(n, h, renamed, accessors);
                ClassNode c = new ClassNode();
                c.visit(V1_8, ACC_PUBLIC | ACC_FINAL | ACC_SYNTHETIC, cls, null, "java/lang/Object",
                        ifs.toArray(new String[0]));
                c.sourceFile = n.sourceFile;
                MethodNode init = new MethodNode(ACC_PUBLIC, "<init>",
                                                 Type.getMethodDescriptor(Type.VOID_TYPE, caps), null, null);
                init.visitVarInsn(ALOAD, 0);
                init.visitMethodInsn(INVOKESPECIAL, "java/lang/Object", "<init>", "()V", false);
                int l = 1;
                for (int k = 0; k < caps.length; k++) {
                    c.fields.add(new FieldNode(ACC_PUBLIC | ACC_FINAL | ACC_SYNTHETIC, "f$" + k,
                                               caps[k].getDescriptor(), null, null));
                    init.visitVarInsn(ALOAD, 0);
                    init.visitVarInsn(caps[k].getOpcode(ILOAD), l);
                    l += caps[k].getSize();
                    init.visitFieldInsn(PUTFIELD, cls, "f$" + k, caps[k].getDescriptor());
                }
                init.visitInsn(RETURN);
                c.methods.add(init);
                MethodNode mk =
                    new MethodNode(ACC_PUBLIC | ACC_STATIC | ACC_SYNTHETIC, "make", d.desc, null, null);
                mk.visitTypeInsn(NEW, cls);
                mk.visitInsn(DUP);
                l = 0;
                for (Type t : caps) {
                    mk.visitVarInsn(t.getOpcode(ILOAD), l);
                    l += t.getSize();
                }
                mk.visitMethodInsn(INVOKESPECIAL, cls, "<init>", init.desc, false);
                mk.visitInsn(ARETURN);
                c.methods.add(mk);
                Set<String> descs = new LinkedHashSet<>(List.of(sam.getDescriptor()));
                descs.addAll(bridges);
                for (String sd : descs)
                    c.methods.add(impl(cls, d.name, Type.getMethodType(sd), inst, h, caps));
                write(c, new ClassWriter(ClassWriter.COMPUTE_MAXS));
                m.instructions.set(i, new MethodInsnNode(INVOKESTATIC, cls, "make", d.desc, false));
            }
        }
        n.methods.addAll(accessors);
        if (!renamed.isEmpty()) // calls of renamed lambda bodies from within the class (none from javac, but
                                // cheap)
            for (MethodNode m : n.methods)
                for (AbstractInsnNode i : m.instructions)
                    if (i instanceof MethodInsnNode x && x.owner.equals(n.name) &&
                        renamed.containsKey(x.name + x.desc))
                        x.name = renamed.get(x.name + x.desc);
    }

    // a private target becomes callable from the lambda's own class
    static Set<String> statics = new HashSet<>(); // of the class at hand

    static Handle reachable(ClassNode n, Handle h, Map<String, String> renamed, List<MethodNode> accessors) {
        if (!h.getOwner().equals(n.name)) return h;
        boolean itf = (n.access & ACC_INTERFACE) != 0;
        if (statics.contains(h.getName() + h.getDesc()))
            return new Handle(H_INVOKESTATIC, n.name, h.getName(),
                              "(L" + n.name + ";" + h.getDesc().substring(1), true);
        String now = renamed.get(h.getName() + h.getDesc());
        if (now != null)
            return new Handle(h.getTag() == H_INVOKESPECIAL ? (itf ? H_INVOKEINTERFACE : H_INVOKEVIRTUAL)
                                                            : h.getTag(),
                              n.name, now, h.getDesc(), itf);
        MethodNode t = find(n, h.getName(), h.getDesc());
        if (t == null || (t.access & ACC_PRIVATE) == 0) return h;
        if (t.name.startsWith("lambda$")) {
            t.access = t.access & ~ACC_PRIVATE | ACC_PUBLIC;
            if ((t.access & ACC_STATIC) != 0) return h;
            if (itf) { // as d8 does: no new virtual method (the runtime knows the size of String's vtable)
                String od = t.desc;
                t.access |= ACC_STATIC;
                t.desc = "(L" + n.name + ";" + od.substring(1);
                if (t.localVariables != null)
                    for (LocalVariableNode v : t.localVariables)
                        if (v.index == 0) v.name = "self";
                statics.add(t.name + od);
                return new Handle(H_INVOKESTATIC, n.name, t.name, t.desc, true);
            }
            String nn = t.name + "$" + n.name.replace('/', '_');
            renamed.put(t.name + t.desc, nn);
            t.name = nn;
            return new Handle(itf ? H_INVOKEINTERFACE : H_INVOKEVIRTUAL, n.name, nn, t.desc, itf);
        }
        Type[] at = Type.getArgumentTypes(h.getDesc());
        boolean ctor = h.getTag() == H_NEWINVOKESPECIAL, st = h.getTag() == H_INVOKESTATIC;
        List<Type> args = new ArrayList<>();
        if (!ctor && !st) args.add(Type.getObjectType(n.name));
        args.addAll(Arrays.asList(at));
        Type ret = ctor ? Type.getObjectType(n.name) : Type.getReturnType(h.getDesc());
        MethodNode a =
            new MethodNode(ACC_PUBLIC | ACC_STATIC | ACC_SYNTHETIC, "access$lambda$" + accessors.size(),
                           Type.getMethodDescriptor(ret, args.toArray(new Type[0])), null, null);
        if (ctor) {
            a.visitTypeInsn(NEW, n.name);
            a.visitInsn(DUP);
        }
        int l = 0;
        for (Type x : args) {
            a.visitVarInsn(x.getOpcode(ILOAD), l);
            l += x.getSize();
        }
        a.visitMethodInsn(st ? INVOKESTATIC : INVOKESPECIAL, n.name, h.getName(), h.getDesc(), itf);
        a.visitInsn(ret.getOpcode(IRETURN));
        accessors.add(a);
        return new Handle(H_INVOKESTATIC, n.name, a.name, a.desc, itf);
    }

    static MethodNode impl(String cls, String name, Type sam, Type inst, Handle h, Type[] caps) {
        MethodNode m = new MethodNode(ACC_PUBLIC, name, sam.getDescriptor(), null, null);
        boolean ctor = h.getTag() == H_NEWINVOKESPECIAL, st = h.getTag() == H_INVOKESTATIC;
        List<Type> params = new ArrayList<>();
        if (!ctor && !st) params.add(Type.getObjectType(h.getOwner()));
        params.addAll(Arrays.asList(Type.getArgumentTypes(h.getDesc())));
        if (ctor) {
            m.visitTypeInsn(NEW, h.getOwner());
            m.visitInsn(DUP);
        }
        int p = 0;
        for (int k = 0; k < caps.length; k++, p++) {
            m.visitVarInsn(ALOAD, 0);
            m.visitFieldInsn(GETFIELD, cls, "f$" + k, caps[k].getDescriptor());
            adapt(m, caps[k], params.get(p));
        }
        Type[] sa = sam.getArgumentTypes(), ia = inst.getArgumentTypes();
        int l = 1;
        for (int k = 0; k < sa.length; k++, p++) {
            m.visitVarInsn(sa[k].getOpcode(ILOAD), l);
            l += sa[k].getSize();
            adapt(m, sa[k], ia[k]);
            adapt(m, ia[k], params.get(p));
        }
        int op = ctor || h.getTag() == H_INVOKESPECIAL ? INVOKESPECIAL
                 : st                                  ? INVOKESTATIC
                 : h.getTag() == H_INVOKEINTERFACE     ? INVOKEINTERFACE
                                                       : INVOKEVIRTUAL;
        m.visitMethodInsn(op, h.getOwner(), h.getName(), h.getDesc(), h.isInterface());
        Type r = ctor ? Type.getObjectType(h.getOwner()) : Type.getReturnType(h.getDesc()),
             sr = sam.getReturnType();
        if (sr.getSort() == Type.VOID) {
            if (r.getSize() == 1)
                m.visitInsn(POP);
            else if (r.getSize() == 2)
                m.visitInsn(POP2);
        } else {
            Type ir = inst.getReturnType();
            if (prim(r) && !prim(ir))
                adapt(m, r, ir);
            else if (!prim(r) && prim(ir))
                adapt(m, r, ir);
            else if (prim(r) && prim(ir))
                adapt(m, r, ir);
            Type now = prim(r) == prim(ir) && !prim(r) ? r : ir;
            adapt(m, now, sr);
        }
        m.visitInsn(sr.getOpcode(IRETURN));
        return m;
    }

    static boolean prim(Type t) { return t.getSort() < Type.ARRAY; }

    static String box(Type t) {
        return switch (t.getSort()) {
            case Type.BOOLEAN -> "java/lang/Boolean";
            case Type.CHAR -> "java/lang/Character";
            case Type.BYTE -> "java/lang/Byte";
            case Type.SHORT -> "java/lang/Short";
            case Type.INT -> "java/lang/Integer";
            case Type.LONG -> "java/lang/Long";
            case Type.FLOAT -> "java/lang/Float";
            default -> "java/lang/Double";
        };
    }

    static Type unboxed(Type t) {
        for (Type x : new Type[] {Type.BOOLEAN_TYPE, Type.CHAR_TYPE, Type.BYTE_TYPE, Type.SHORT_TYPE,
                                  Type.INT_TYPE, Type.LONG_TYPE, Type.FLOAT_TYPE, Type.DOUBLE_TYPE})
            if (box(x).equals(t.getInternalName())) return x;
        return null;
    }

    static void adapt(MethodNode m, Type from, Type to) {
        if (from.equals(to)) return;
        if (prim(from) && prim(to)) {
            int f = from.getSort(), t = to.getSort();
            if (t == Type.LONG && f < Type.LONG && f != Type.FLOAT)
                m.visitInsn(I2L);
            else if (t == Type.FLOAT)
                m.visitInsn(f == Type.LONG ? L2F : I2F);
            else if (t == Type.DOUBLE)
                m.visitInsn(f == Type.LONG ? L2D : f == Type.FLOAT ? F2D : I2D);
        } else if (prim(from)) {
            Type as = unboxed(to);
            if (as != null)
                adapt(m, from, as);
            else
                as = from;
            m.visitMethodInsn(INVOKESTATIC, box(as), "valueOf", "(" + as + ")L" + box(as) + ";", false);
        } else if (prim(to)) {
            Type as = unboxed(from);
            if (as == null) {
                as = to;
                m.visitTypeInsn(CHECKCAST, box(as));
            }
            m.visitMethodInsn(INVOKEVIRTUAL, box(as), as.getClassName() + "Value", "()" + as, false);
            adapt(m, as, to);
        } else if (!to.getInternalName().equals("java/lang/Object"))
            m.visitTypeInsn(CHECKCAST, to.getInternalName());
    }
}
