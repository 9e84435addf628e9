//! Rows of one table, column by column, as a statement takes them.

use rusqlite::Row;
use rusqlite::types::ValueRef;

/// The type of a column in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Bigint,
    Integer,
    Boolean,
    Text,
    /// A text that users choose freely, or bytes.
    Bytes,
    /// An unsigned number, stored as its signed twin in a folder.
    Numeric,
    /// The same number as a text.
    NumberText,
}

/// Where rows come from and go to.
#[derive(Debug)]
pub(crate) struct ImportTable {
    /// The name in the database.
    pub(crate) name: &'static str,
    /// Names and types in the database, in the order of `select`.
    pub(crate) columns: &'static [(&'static str, ColumnKind)],
    /// Reads the rows of a folder.
    pub(crate) select: &'static str,
    /// The format of the first folders that have the table.
    pub(crate) since: u32,
    /// What to do if a server has written the same row to the empty database: see `tables`.
    pub(crate) on_conflict: &'static str,
}

#[derive(Debug)]
pub(crate) enum ColumnValues {
    Bigint(Vec<Option<i64>>),
    Integer(Vec<Option<i32>>),
    Boolean(Vec<Option<bool>>),
    Text(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl ColumnValues {
    const fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Bigint => Self::Bigint(Vec::new()),
            ColumnKind::Integer => Self::Integer(Vec::new()),
            ColumnKind::Boolean => Self::Boolean(Vec::new()),
            ColumnKind::Text | ColumnKind::Numeric | ColumnKind::NumberText => Self::Text(Vec::new()),
            ColumnKind::Bytes => Self::Bytes(Vec::new()),
        }
    }

    /// Appends a value. Returns its size.
    fn push(&mut self, value: ValueRef<'_>) -> rusqlite::Result<usize> {
        let is_null = matches!(value, ValueRef::Null);
        match self {
            Self::Bigint(values) => values.push(value.as_i64_or_null()?),
            Self::Integer(values) => {
                let number = value.as_i64_or_null()?;
                let narrow =
                    |number| i32::try_from(number).map_err(|_| rusqlite::types::FromSqlError::OutOfRange(number));
                values.push(number.map(narrow).transpose()?);
            }
            Self::Boolean(values) => values.push(value.as_i64_or_null()?.map(|number| number != 0)),
            Self::Text(values) => match value {
                ValueRef::Integer(number) => values.push(Some(number.cast_unsigned().to_string())),
                value => values.push(value.as_str_or_null()?.map(str::to_owned)),
            },
            Self::Bytes(values) if is_null => values.push(None),
            Self::Bytes(values) => values.push(Some(value.as_bytes()?.to_vec())),
        }
        Ok(match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => size_of::<i64>(),
        })
    }
}

/// Some rows of a table.
#[derive(Debug)]
pub(crate) struct RowBatch {
    pub(crate) table: &'static ImportTable,
    pub(crate) columns: Vec<ColumnValues>,
    rows: usize,
    bytes: usize,
}

impl RowBatch {
    /// The size at which a batch is complete.
    pub(crate) const ROWS_MAX: usize = 4_096;
    pub(crate) const BYTES_MAX: usize = 1024 * 1024;

    pub(crate) fn new(table: &'static ImportTable) -> Self {
        let columns = table.columns.iter().map(|(_, kind)| ColumnValues::new(*kind)).collect();
        Self { table, columns, rows: 0, bytes: 0 }
    }

    /// Appends a row of the table's statement.
    pub(crate) fn push(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        for (index, column) in self.columns.iter_mut().enumerate() {
            self.bytes += column.push(row.get_ref(index)?)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Appends a row.
    pub(crate) fn push_values(&mut self, values: &[ValueRef<'_>]) -> rusqlite::Result<()> {
        for (column, value) in self.columns.iter_mut().zip(values) {
            self.bytes += column.push(*value)?;
        }
        self.rows += 1;
        Ok(())
    }

    pub(crate) const fn len(&self) -> usize {
        self.rows
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.rows >= Self::ROWS_MAX || self.bytes >= Self::BYTES_MAX
    }
}
