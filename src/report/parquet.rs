//! Parquet beside CSV: the same rows with the types of their columns, compressed.
//!
//! A table is written in groups of rows, so that memory does not grow with it, and holds no time and no
//! name of a machine: the same rows are the same bytes.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

use super::table_column::{Column, Kind};

/// In a group; each column of one is in memory.
const ROWS_IN_GROUP: usize = 1 << 17;

/// Writes rows, column by column.
struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Values>,
}

/// A column of the group that is not written yet.
enum Values {
    /// Never null.
    Counts(Vec<i64>),
    Ints(Nullable<i64>),
    /// Of 64 bits without a sign.
    Ids(Nullable<i64>),
    Floats(Nullable<f64>),
    Texts(Nullable<ByteArray>),
    Bools(Nullable<bool>),
}

/// What is there, and of each row whether it is (1) or not (0).
#[derive(Default)]
struct Nullable<T> {
    values: Vec<T>,
    is_there: Vec<i16>,
}

impl<T> Nullable<T> {
    fn push(&mut self, value: Option<T>) {
        self.is_there.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

impl<W: Write + Send> ParquetWriter<W> {
    fn new(out: W, columns: &[Column<&str>]) -> io::Result<Self> {
        let fields = columns.iter().map(|(name, kind)| field(name, *kind).map(Arc::new));
        let schema = Type::group_type_builder("schema")
            .with_fields(fields.collect::<Result<_, _>>().map_err(in_io)?)
            .build()
            .map_err(in_io)?;
        let mut properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        for (name, kind) in columns {
            // Times and counters differ by little from row to row.
            if matches!(kind, Kind::Count | Kind::Int) {
                let path = ColumnPath::from(*name);
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
        }
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()));
        let columns = columns.iter().map(|(_, kind)| match kind {
            Kind::Count => Values::Counts(Vec::new()),
            Kind::Int => Values::Ints(Nullable::default()),
            Kind::Id => Values::Ids(Nullable::default()),
            Kind::Float => Values::Floats(Nullable::default()),
            Kind::Text => Values::Texts(Nullable::default()),
            Kind::Bool => Values::Bools(Nullable::default()),
        });
        Ok(Self { file: file.map_err(in_io)?, columns: columns.collect() })
    }

    /// Writes the rows so far, if they are a group.
    fn end_row(&mut self) -> io::Result<()> {
        if self.columns.first().is_some_and(|column| column.rows() >= ROWS_IN_GROUP) {
            self.write_group()?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if self.columns.first().is_some_and(|column| column.rows() > 0) {
            self.write_group()?;
        }
        self.file.close().map(|_| ()).map_err(in_io)
    }

    fn write_group(&mut self) -> io::Result<()> {
        let mut group = self.file.next_row_group().map_err(in_io)?;
        for column in &mut self.columns {
            column.write(&mut group).map_err(in_io)?;
        }
        group.close().map(|_| ()).map_err(in_io)
    }
}

impl Values {
    fn rows(&self) -> usize {
        match self {
            Self::Counts(values) => values.len(),
            Self::Ints(column) | Self::Ids(column) => column.is_there.len(),
            Self::Floats(column) => column.is_there.len(),
            Self::Texts(column) => column.is_there.len(),
            Self::Bools(column) => column.is_there.len(),
        }
    }

    /// Takes the text of a cell; an empty one is null.
    fn push(&mut self, cell: &str) -> io::Result<()> {
        let is_there = !cell.is_empty();
        match self {
            Self::Counts(values) => values.push(parse(cell)?),
            Self::Ints(column) => column.push(is_there.then(|| parse(cell)).transpose()?),
            Self::Ids(column) => {
                let id = is_there.then(|| parse::<u64>(cell)).transpose()?;
                column.push(id.map(u64::cast_signed));
            }
            Self::Floats(column) => column.push(is_there.then(|| parse(cell)).transpose()?),
            Self::Texts(column) => column.push(is_there.then(|| cell.into())),
            Self::Bools(column) => column.push(is_there.then(|| parse(cell)).transpose()?),
        }
        Ok(())
    }

    fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        fn nullable<T: DataType, W: Write + Send>(
            group: &mut SerializedRowGroupWriter<'_, W>,
            column: &mut Nullable<T::T>,
        ) -> Result<(), ParquetError> {
            write_column::<T, W>(group, &column.values, Some(&column.is_there))?;
            column.values.clear();
            column.is_there.clear();
            Ok(())
        }
        match self {
            Self::Counts(values) => {
                write_column::<Int64Type, W>(group, values, None)?;
                values.clear();
                Ok(())
            }
            Self::Ints(column) | Self::Ids(column) => nullable::<Int64Type, W>(group, column),
            Self::Floats(column) => nullable::<DoubleType, W>(group, column),
            Self::Texts(column) => nullable::<ByteArrayType, W>(group, column),
            Self::Bools(column) => nullable::<BoolType, W>(group, column),
        }
    }
}

fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    is_there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("there are more columns than the schema has".to_owned()));
    };
    column.typed::<T>().write_batch(values, is_there, None)?;
    column.close()
}

fn field(name: &str, kind: Kind) -> Result<Type, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Count | Kind::Int => (PhysicalType::INT64, None),
        Kind::Id => (PhysicalType::INT64, Some(LogicalType::integer(64, false))),
        Kind::Float => (PhysicalType::DOUBLE, None),
        Kind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Bool => (PhysicalType::BOOLEAN, None),
    };
    let repetition = if kind == Kind::Count { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
}

/// Writes `NAME.parquet` beside a file `NAME.csv`, whose columns are among these.
///
/// # Errors
/// It cannot be written; or the table has another column, a mistake of ours.
pub(super) fn parquet_beside(csv: &Path, columns: &[Column<&str>]) -> io::Result<()> {
    let out = BufWriter::new(File::create(csv.with_extension("parquet"))?);
    parquet_of_csv(BufReader::new(File::open(csv)?), columns, out)
}

/// A CSV table as Parquet, in memory.
///
/// # Errors
/// The table has a column that is not among these, a mistake of ours.
pub(crate) fn parquet_bytes(csv: &str, columns: &[Column<String>]) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    parquet_of_csv(csv.as_bytes(), columns, &mut bytes)?;
    Ok(Some(bytes))
}

/// A table of whole numbers that are never null, written as they come.
pub(super) struct CountsWriter(ParquetWriter<BufWriter<File>>);

impl CountsWriter {
    pub fn create(path: &Path, columns: &[&str]) -> io::Result<Self> {
        let columns: Vec<Column<&str>> = columns.iter().map(|&name| (name, Kind::Count)).collect();
        Ok(Self(ParquetWriter::new(BufWriter::new(File::create(path)?), &columns)?))
    }

    /// The same row so many times.
    pub fn push(&mut self, row: &[u64], times: u32) -> io::Result<()> {
        for (column, &value) in self.0.columns.iter_mut().zip(row) {
            if let Values::Counts(values) = column {
                values.extend(std::iter::repeat_n(value.cast_signed(), times as usize));
            }
        }
        self.0.end_row()
    }

    pub fn finish(self) -> io::Result<()> {
        self.0.finish()
    }
}

/// Writes a CSV table as Parquet.
///
/// # Errors
/// `out` cannot be written; or the table has a column that is not among these, a mistake of ours.
fn parquet_of_csv<N: AsRef<str>>(
    csv: impl Read,
    columns: &[Column<N>],
    out: impl Write + Send,
) -> io::Result<()> {
    let mut reader = csv::Reader::from_reader(csv);
    let known = |name| columns.iter().map(|(name, kind)| (name.as_ref(), *kind)).find(|it| it.0 == name);
    let header = reader.headers().map_err(io::Error::other)?.clone();
    let columns: Vec<Column<&str>> = header.iter().filter_map(known).collect();
    if columns.len() < header.len() {
        return Err(io::Error::other(format!(
            "the table has the columns {header:?}; this is a mistake in kvsim"
        )));
    }
    let mut writer = ParquetWriter::new(out, &columns)?;
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(io::Error::other)? {
        for (values, cell) in writer.columns.iter_mut().zip(&record) {
            values.push(cell)?;
        }
        writer.end_row()?;
    }
    writer.finish()
}

fn parse<T: std::str::FromStr>(cell: &str) -> io::Result<T> {
    cell.parse()
        .map_err(|_| io::Error::other(format!("found {cell:?} among numbers; this is a mistake in kvsim")))
}

fn in_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    const COLUMNS: [Column<&str>; 5] = [
        ("at_us", Kind::Count),
        ("session", Kind::Int),
        ("ttft_ms", Kind::Float),
        ("tenant", Kind::Text),
        ("is_on_front", Kind::Bool),
    ];

    fn written(csv: &str) -> Vec<u8> {
        let mut out = Vec::new();
        parquet_of_csv(csv.as_bytes(), &COLUMNS, &mut out).unwrap();
        out
    }

    fn rows(parquet: Vec<u8>) -> Vec<Vec<Field>> {
        let reader = SerializedFileReader::new(Bytes::from(parquet)).unwrap();
        let fields =
            |row: parquet::record::Row| row.get_column_iter().map(|(_, field)| field.clone()).collect();
        reader.get_row_iter(None).unwrap().map(|row| fields(row.unwrap())).collect()
    }

    #[test]
    fn a_table_is_read_back_with_its_types() {
        let csv = "at_us,session,ttft_ms,tenant,is_on_front\n3,-7,0.1,\"a,b\",true\n4,,,,\n";
        let expected = [
            [
                Field::Long(3),
                Field::Long(-7),
                Field::Double(0.1),
                Field::Str("a,b".to_owned()),
                Field::Bool(true),
            ],
            [Field::Long(4), Field::Null, Field::Null, Field::Null, Field::Null],
        ];
        assert_eq!(rows(written(csv)), expected);
        assert_eq!(written(csv), written(csv));
        assert!(rows(written("at_us,session,ttft_ms,tenant,is_on_front\n")).is_empty());
    }

    #[test]
    fn groups_of_rows_follow_one_another() {
        let mut csv = "at_us,session,ttft_ms,tenant,is_on_front\n".to_owned();
        let num_rows = 2 * ROWS_IN_GROUP + 3;
        for row in 0..num_rows {
            csv += &format!("{row},,{row}.5,t{},{}\n", row % 3, row % 2 == 0);
        }
        let parquet = written(&csv);
        let reader = SerializedFileReader::new(Bytes::from(parquet.clone())).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 3);
        let rows = rows(parquet);
        assert_eq!(rows.len(), num_rows);
        let last = [
            Field::Long(num_rows as i64 - 1),
            Field::Null,
            Field::Double(num_rows as f64 - 0.5),
            Field::Str(format!("t{}", (num_rows - 1) % 3)),
            Field::Bool(true),
        ];
        assert_eq!(rows[num_rows - 1], last);
    }

    #[test]
    fn other_columns_are_a_mistake_of_ours() {
        let error = parquet_of_csv("a,b\n1,2\n".as_bytes(), &[("a", Kind::Int)], Vec::new()).unwrap_err();
        assert!(error.to_string().ends_with("this is a mistake in kvsim"), "{error}");
    }
}
