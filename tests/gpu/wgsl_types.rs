//! A model of the types that host and device share: their names, where their parts lie by the rules of the WGSL
//! specification ("Alignment and Size"), and how a program writes the way to each of them.

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    U32,
    I32,
    F32,
    F16,
    I64,
    U64,
    F64,
}

impl Scalar {
    pub fn name(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F64 => "f64",
        }
    }

    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// A value that every device moves bit for bit: floats are ordinary ones.
    pub fn noise(self, random: &mut Random) -> Vec<u8> {
        let bits = random.next();
        match self {
            Self::U32 | Self::I32 => (bits as u32).to_le_bytes().to_vec(),
            Self::I64 | Self::U64 => bits.to_le_bytes().to_vec(),
            Self::F32 => (bits as i16 as f32 / 64.0).to_le_bytes().to_vec(),
            Self::F64 => (bits as i32 as f64 / 4096.0).to_le_bytes().to_vec(),
            Self::F16 => {
                // Sign, an exponent in the middle of its range, any mantissa.
                let half = (bits as u16 & 0x83ff) | (10 + (bits >> 32) as u16 % 10) << 10;
                half.to_le_bytes().to_vec()
            }
        }
    }
}

#[derive(Debug, Clone)]
pub enum Type {
    Scalar(Scalar),
    Vector(usize, Scalar),
    /// Columns and rows.
    Matrix(usize, usize, Scalar),
    Array(Box<Type>, usize),
    Struct(&'static str, Vec<Type>),
}

pub fn vector(count: usize, scalar: Scalar) -> Type {
    Type::Vector(count, scalar)
}

pub fn array(of: Type, count: usize) -> Type {
    Type::Array(Box::new(of), count)
}

impl Type {
    pub fn name(&self) -> String {
        match self {
            Self::Scalar(scalar) => scalar.name().to_owned(),
            Self::Vector(count, scalar) => format!("vec{count}<{}>", scalar.name()),
            Self::Matrix(columns, rows, scalar) => {
                format!("mat{columns}x{rows}<{}>", scalar.name())
            }
            Self::Array(of, count) => format!("array<{}, {count}>", of.name()),
            Self::Struct(name, _) => (*name).to_owned(),
        }
    }

    pub fn align(&self) -> usize {
        match self {
            Self::Scalar(scalar) => scalar.bytes(),
            Self::Vector(count, scalar) | Self::Matrix(_, count, scalar) => {
                scalar.bytes() * if *count == 2 { 2 } else { 4 }
            }
            Self::Array(of, _) => of.align(),
            Self::Struct(_, members) => members.iter().map(Self::align).max().unwrap(),
        }
    }

    pub fn size(&self) -> usize {
        match self {
            Self::Scalar(scalar) => scalar.bytes(),
            Self::Vector(count, scalar) => count * scalar.bytes(),
            Self::Matrix(columns, ..) => columns * self.align(),
            Self::Array(of, count) => of.stride() * count,
            Self::Struct(_, members) => {
                let end = |(offset, member): (usize, &Self)| offset + member.size();
                let end = self.offsets().into_iter().zip(members).map(end).max();
                end.unwrap().next_multiple_of(self.align())
            }
        }
    }

    /// Bytes from one element of an array of these to the next.
    pub fn stride(&self) -> usize {
        self.size().next_multiple_of(self.align())
    }

    /// Where each member of a structure begins.
    pub fn offsets(&self) -> Vec<usize> {
        let Self::Struct(_, members) = self else {
            return Vec::new();
        };
        let mut at = 0;
        let place = |member: &Self| {
            let offset = usize::next_multiple_of(at, member.align());
            at = offset + member.size();
            offset
        };
        members.iter().map(place).collect()
    }

    /// The parts of which the value consists: how each is written, and where it begins.
    pub fn parts(&self) -> Vec<(Step, usize, Type)> {
        match self {
            Self::Scalar(_) => Vec::new(),
            Self::Vector(count, scalar) => (0..*count)
                .map(|i| {
                    let part = Self::Scalar(*scalar);
                    (Step::Component(i), i * scalar.bytes(), part)
                })
                .collect(),
            Self::Matrix(columns, rows, scalar) => (0..*columns)
                .map(|i| {
                    let part = Self::Vector(*rows, *scalar);
                    (Step::Element(i), i * self.align(), part)
                })
                .collect(),
            Self::Array(of, count) => (0..*count)
                .map(|i| (Step::Element(i), i * of.stride(), (**of).clone()))
                .collect(),
            Self::Struct(_, members) => (members.iter().zip(self.offsets()).enumerate())
                .map(|(i, (member, offset))| (Step::Member(i), offset, member.clone()))
                .collect(),
        }
    }

    /// The scalars of which the value consists: how each is written, and where it lies.
    pub fn leaves(&self) -> Vec<(Vec<Step>, usize, Scalar)> {
        if let Self::Scalar(scalar) = self {
            return vec![(Vec::new(), 0, *scalar)];
        }
        let mut leaves = Vec::new();
        for (step, offset, part) in self.parts() {
            for (mut path, inner, scalar) in part.leaves() {
                path.insert(0, step);
                leaves.push((path, offset + inner, scalar));
            }
        }
        leaves
    }

    /// The declarations of the structures in it, inner ones first.
    pub fn declarations(&self, to: &mut Vec<String>) {
        for (_, _, part) in self.parts() {
            part.declarations(to);
        }
        if let Self::Struct(name, members) = self {
            let members: Vec<String> = (members.iter().enumerate())
                .map(|(i, member)| format!("m{i}: {}", member.name()))
                .collect();
            let text = format!("struct {name} {{ {} }}\n", members.join(", "));
            if !to.contains(&text) {
                to.push(text);
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Step {
    Member(usize),
    Element(usize),
    Component(usize),
}

/// A path behind a pointer `p`, with indices that the compiler knows or does not know.
pub fn written(p: &str, path: &[Step], computed: bool) -> String {
    let mut text = match path {
        [] => format!("(*{p})"),
        _ => p.to_owned(),
    };
    for step in path {
        match step {
            Step::Member(i) => text += &format!(".m{i}"),
            Step::Element(i) | Step::Component(i) if computed => {
                text += &format!("[{i}u + zero]");
            }
            Step::Element(i) => text += &format!("[{i}]"),
            Step::Component(i) => text += &format!(".{}", ["x", "y", "z", "w"][*i]),
        }
    }
    text
}

/// xorshift64*, by Vigna.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
