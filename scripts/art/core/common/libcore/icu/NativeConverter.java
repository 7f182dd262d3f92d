package libcore.icu;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.*;

// Replaces the ICU-backed converters: UTF-8, US-ASCII, ISO-8859-1, UTF-16 (without byte order marks) in plain
// Java.
public final class NativeConverter {
    public static String[] getAvailableCharsetNames() {
        return new String[] {"UTF-8", "US-ASCII", "ISO-8859-1", "UTF-16BE", "UTF-16LE", "UTF-16"};
    }

    public static Charset charsetForName(String n) {
        if (n.equalsIgnoreCase("UTF-8") || n.equalsIgnoreCase("UTF8")) return new Simple("UTF-8", 0);
        if (n.equalsIgnoreCase("US-ASCII") || n.equalsIgnoreCase("ASCII"))
            return new Simple("US-ASCII", 0x7f);
        if (n.equalsIgnoreCase("ISO-8859-1") || n.equalsIgnoreCase("latin1"))
            return new Simple("ISO-8859-1", 0xff);
        if (n.equalsIgnoreCase("UTF-16BE") || n.equalsIgnoreCase("UTF-16"))
            return new Simple(n.equalsIgnoreCase("UTF-16") ? "UTF-16" : "UTF-16BE", -1);
        if (n.equalsIgnoreCase("UTF-16LE")) return new Simple("UTF-16LE", -2);
        return null;
    }

    static final class Simple extends Charset {
        final int max; // the largest character of a single-byte charset; 0: UTF-8; -1, -2: UTF-16BE, UTF-16LE

        Simple(String name, int max) {
            super(name, null);
            this.max = max;
        }

        @Override
        public boolean contains(Charset c) {
            return c.name().equals(name()) || max <= 0;
        }

        @Override
        public CharsetEncoder newEncoder() {
            return new CharsetEncoder(this,
                                      max < 0    ? 2f
                                      : max == 0 ? 1.1f
                                                 : 1f,
                                      max < 0    ? 2f
                                      : max == 0 ? 4f
                                                 : 1f,
                                      max == -1   ? new byte[] {0, '?'}
                                      : max == -2 ? new byte[] {'?', 0}
                                                  : new byte[] {'?'}) {
                @Override
                public boolean isLegalReplacement(byte[] b) {
                    return true;
                }

                @Override
                protected CoderResult encodeLoop(CharBuffer in, ByteBuffer out) {
                    while (in.hasRemaining()) {
                        int at = in.position(), c = in.get(), n = 1;
                        if (max < 0) {
                            if (out.remaining() < 2) {
                                in.position(at);
                                return CoderResult.OVERFLOW;
                            }
                            out.put((byte)(max == -1 ? c >> 8 : c));
                            out.put((byte)(max == -1 ? c : c >> 8));
                            continue;
                        }
                        if (max > 0 && c > max) {
                            in.position(at);
                            return CoderResult.unmappableForLength(1);
                        }
                        if (max == 0 && Character.isSurrogate((char)c)) {
                            if (!Character.isHighSurrogate((char)c)) {
                                in.position(at);
                                return CoderResult.malformedForLength(1);
                            }
                            if (!in.hasRemaining()) {
                                in.position(at);
                                return CoderResult.UNDERFLOW;
                            }
                            char d = in.get();
                            if (!Character.isLowSurrogate(d)) {
                                in.position(at);
                                return CoderResult.malformedForLength(1);
                            }
                            c = Character.toCodePoint((char)c, d);
                        }
                        if (max == 0) n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
                        if (out.remaining() < n) {
                            in.position(at);
                            return CoderResult.OVERFLOW;
                        }
                        if (n == 1) {
                            out.put((byte)c);
                        } else {
                            out.put((byte)((0xf00 >> n) & 0xff | c >> 6 * (n - 1)));
                            for (int k = n - 2; k >= 0; k--) out.put((byte)(0x80 | c >> 6 * k & 0x3f));
                        }
                    }
                    return CoderResult.UNDERFLOW;
                }
            };
        }

        @Override
        public CharsetDecoder newDecoder() {
            return new CharsetDecoder(this, 1f, 1f) {
                @Override
                protected CoderResult decodeLoop(ByteBuffer in, CharBuffer out) {
                    while (in.hasRemaining()) {
                        int at = in.position();
                        if (max < 0) {
                            if (in.remaining() < 2) return CoderResult.UNDERFLOW;
                            if (!out.hasRemaining()) return CoderResult.OVERFLOW;
                            int a = in.get() & 0xff, b = in.get() & 0xff;
                            out.put((char)(max == -1 ? a << 8 | b : b << 8 | a));
                            continue;
                        }
                        int c = in.get() & 0xff, n = 1;
                        if (max == 0 && c >= 0x80) {
                            n = c >= 0xf0 && c < 0xf8   ? 4
                                : c >= 0xe0 && c < 0xf0 ? 3
                                : c >= 0xc2 && c < 0xe0 ? 2
                                                        : 0;
                            if (n == 0) {
                                in.position(at);
                                return CoderResult.malformedForLength(1);
                            }
                            if (in.remaining() < n - 1) {
                                in.position(at);
                                return CoderResult.UNDERFLOW;
                            }
                            c &= 0x7f >> n;
                            for (int k = 1; k < n; k++) {
                                int b = in.get();
                                if ((b & 0xc0) != 0x80) {
                                    in.position(at);
                                    return CoderResult.malformedForLength(k);
                                }
                                c = c << 6 | b & 0x3f;
                            }
                        } else if (max > 0 && c > max) {
                            in.position(at);
                            return CoderResult.malformedForLength(1);
                        }
                        int w = c >= 0x10000 ? 2 : 1;
                        if (out.remaining() < w) {
                            in.position(at);
                            return CoderResult.OVERFLOW;
                        }
                        if (w == 1) {
                            out.put((char)c);
                        } else {
                            out.put(Character.highSurrogate(c));
                            out.put(Character.lowSurrogate(c));
                        }
                    }
                    return CoderResult.UNDERFLOW;
                }
            };
        }
    }
}
