CREATE TABLE spreadsheets (id TEXT PRIMARY KEY, title TEXT NOT NULL, created TEXT NOT NULL, modified TEXT NOT NULL);
CREATE TABLE sheets (
    id INTEGER PRIMARY KEY, spreadsheet TEXT NOT NULL REFERENCES spreadsheets(id), number INTEGER NOT NULL,
    title TEXT NOT NULL COLLATE NOCASE, row_count INTEGER NOT NULL, column_count INTEGER NOT NULL,
    UNIQUE (spreadsheet, number), UNIQUE (spreadsheet, title)
);
CREATE TABLE lines (
    sheet INTEGER NOT NULL REFERENCES sheets(id), row INTEGER NOT NULL, cells TEXT NOT NULL, PRIMARY KEY (sheet, row)
) WITHOUT ROWID;
